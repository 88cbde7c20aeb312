# `cmake --install`: libraries, headers, command line, HiGHS, a CMake package and files of pkg-config. Nothing in it
# names a folder outside it, so that the whole may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(REMAT_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/remat)
# A folder of its own: the system may have another libhighs.so.
set(REMAT_HIGHS_DIR ${CMAKE_INSTALL_LIBDIR}/remat)

install(TARGETS remat EXPORT remat-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} FILE_SET HEADERS
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# A linker of the GNU kind; another leaves hidden symbols global in the archive.
if(CMAKE_OBJCOPY AND CMAKE_LINKER MATCHES "/(ld|ld\\.bfd|[^/]*-ld)$" AND NOT REMAT_SANITIZE AND NOT REMAT_COVERAGE)
  install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\"
    \"-DARCHIVE=\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/libremat.a\" \"-DLINKER=${CMAKE_LINKER}\"
    \"-DOBJCOPY=${CMAKE_OBJCOPY}\" \"-DAR=${CMAKE_AR}\" -P \"${PROJECT_SOURCE_DIR}/cmake/seal_archive.cmake\"
    COMMAND_ERROR_IS_FATAL ANY)")
endif()
if(REMAT_SHARED)
  if(REMAT_HIGHS)
    set_property(TARGET remat_shared PROPERTY INSTALL_RPATH "$ORIGIN/remat")
  endif()
  install(TARGETS remat_shared EXPORT remat-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(EXPORT remat-targets NAMESPACE remat:: DESTINATION ${REMAT_CMAKE_DIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY licenses DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(REMAT_HIGHS)
  get_filename_component(REMAT_HIGHS_NAME ${REMAT_HIGHS_LIBRARY} NAME)
  install(PROGRAMS ${REMAT_HIGHS_LIBRARY} DESTINATION ${REMAT_HIGHS_DIR})
endif()
if(REMAT_CLI)
  if(REMAT_HIGHS)
    file(RELATIVE_PATH REMAT_BIN_TO_HIGHS ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/remat)
    set_property(TARGET remat_cli APPEND PROPERTY INSTALL_RPATH "$ORIGIN/${REMAT_BIN_TO_HIGHS}")
  endif()
  install(TARGETS remat_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(cmake/remat-config.cmake.in ${PROJECT_BINARY_DIR}/remat-config.cmake
  INSTALL_DESTINATION ${REMAT_CMAKE_DIR} PATH_VARS REMAT_HIGHS_DIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/remat-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/remat-config.cmake ${PROJECT_BINARY_DIR}/remat-config-version.cmake
  cmake/remat-ship-highs.cmake DESTINATION ${REMAT_CMAKE_DIR})

# pkg-config: `remat` is the shared library where it was built, `remat-static` the archive with what it needs.
file(RELATIVE_PATH REMAT_PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" REMAT_PC_TO_PREFIX ${REMAT_PC_TO_PREFIX})
set(REMAT_PC_STATIC_LIBS "\${libdir}/libremat.a -Wl,--exclude-libs,libremat.a -lstdc++ -lm -ldl -pthread")
if(REMAT_HIGHS)
  string(PREPEND REMAT_PC_STATIC_LIBS "-L\${libdir}/remat -Wl,-rpath,\${libdir}/remat ")
  string(APPEND REMAT_PC_STATIC_LIBS " -lhighs")
endif()
foreach(name remat remat-static)
  set(REMAT_PC_NAME ${name})
  set(REMAT_PC_LIBS "-L\${libdir} -lremat")
  if(name STREQUAL "remat-static" OR NOT REMAT_SHARED)
    set(REMAT_PC_LIBS ${REMAT_PC_STATIC_LIBS})
  endif()
  configure_file(cmake/remat.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
