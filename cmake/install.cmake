# `cmake --install`: library, headers, command line, HiGHS, and a CMake package. Nothing in it names a folder
# outside it, so that the whole may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(REMAT_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/remat)
# A folder of its own: the system may have another libhighs.so.
set(REMAT_HIGHS_DIR ${CMAKE_INSTALL_LIBDIR}/remat)
get_filename_component(REMAT_HIGHS_NAME ${REMAT_HIGHS_LIBRARY} NAME)

install(TARGETS remat EXPORT remat-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION
  ${CMAKE_INSTALL_LIBDIR} FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT remat-targets NAMESPACE remat:: DESTINATION ${REMAT_CMAKE_DIR})
install(PROGRAMS ${REMAT_HIGHS_LIBRARY} DESTINATION ${REMAT_HIGHS_DIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY licenses DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(REMAT_CLI)
  file(RELATIVE_PATH REMAT_BIN_TO_HIGHS ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/remat)
  set_property(TARGET remat_cli APPEND PROPERTY INSTALL_RPATH "$ORIGIN/${REMAT_BIN_TO_HIGHS}")
  install(TARGETS remat_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(cmake/remat-config.cmake.in ${PROJECT_BINARY_DIR}/remat-config.cmake
  INSTALL_DESTINATION ${REMAT_CMAKE_DIR} PATH_VARS REMAT_HIGHS_DIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/remat-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/remat-config.cmake ${PROJECT_BINARY_DIR}/remat-config-version.cmake
  cmake/remat-ship-highs.cmake DESTINATION ${REMAT_CMAKE_DIR})
