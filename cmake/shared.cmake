# The shared library: the objects of the static one, and the API alone exported.
add_library(remat_shared SHARED $<TARGET_OBJECTS:remat>)
add_library(remat::shared ALIAS remat_shared)
set_target_properties(remat_shared PROPERTIES OUTPUT_NAME remat EXPORT_NAME shared LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
target_link_options(remat_shared PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map)
if(NOT REMAT_SANITIZE)  # whose functions are in the program
  target_link_options(remat_shared PRIVATE LINKER:--no-undefined)
endif()
target_compile_features(remat_shared PUBLIC cxx_std_20)
target_include_directories(remat_shared INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:include>)
target_link_libraries(remat_shared PUBLIC Threads::Threads PRIVATE ${CMAKE_DL_LIBS}
  $<TARGET_NAME_IF_EXISTS:remat::highs>)
