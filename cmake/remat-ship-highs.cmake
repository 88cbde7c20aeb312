# Used by this project and installed for those that use it.
#
# remat_ship_highs(TARGET): puts libhighs.so beside a program or module that links remat, where it is found
# wherever the folder is moved. A build without HiGHS has nothing to ship.
function(remat_ship_highs target)
  if(NOT TARGET remat::highs)
    return()
  endif()
  set_target_properties(${target} PROPERTIES BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN" BUILD_WITH_INSTALL_RPATH ON)
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E copy_if_different "$<TARGET_FILE:remat::highs>" "$<TARGET_FILE_DIR:${target}>"
    VERBATIM)
endfunction()
