# HiGHS (LP and MILP) from the PyPI package `highsbox`: headers and a shared library. The library is built
# with the old libstdc++ string ABI, so only its C interface is used, and its own CMake package names a
# folder that does not exist, so the target is made here.
#   REMAT_HIGHS_ROOT   folder with include/highs and lib/libhighs.so; searched where it is not set
set(REMAT_HIGHS_ROOT "" CACHE PATH "HiGHS: folder with include/highs and lib; empty: ask a Python that has highsbox")

function(remat_find_highs_root result)
  if(REMAT_HIGHS_ROOT)
    set(${result} "${REMAT_HIGHS_ROOT}" PARENT_SCOPE)
    return()
  endif()
  foreach(python ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/.venv/bin/python python3)
    execute_process(COMMAND ${python} -c "import highsbox; print(highsbox.highs_dist_dir())"
      OUTPUT_VARIABLE root RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT failed)
      set(${result} "${root}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

remat_find_highs_root(REMAT_HIGHS_FOUND_ROOT)
find_path(REMAT_HIGHS_INCLUDE interfaces/highs_c_api.h
  PATHS "${REMAT_HIGHS_FOUND_ROOT}/include" PATH_SUFFIXES highs NO_DEFAULT_PATH)
find_library(REMAT_HIGHS_LIBRARY highs PATHS "${REMAT_HIGHS_FOUND_ROOT}/lib" NO_DEFAULT_PATH)
if(NOT REMAT_HIGHS_INCLUDE OR NOT REMAT_HIGHS_LIBRARY)
  message(FATAL_ERROR "HiGHS was not found. Install it with `python3 -m pip install highsbox` (or into "
    "${PROJECT_SOURCE_DIR}/.venv, or pass -DPython_EXECUTABLE=...), or point -DREMAT_HIGHS_ROOT at a folder "
    "with include/highs and lib/libhighs.so.")
endif()

# Not `highs::highs`: a project above may have a HiGHS of its own.
add_library(remat::highs SHARED IMPORTED GLOBAL)
get_filename_component(REMAT_HIGHS_INCLUDE_PARENT "${REMAT_HIGHS_INCLUDE}" DIRECTORY)
set_target_properties(remat::highs PROPERTIES IMPORTED_LOCATION "${REMAT_HIGHS_LIBRARY}")
target_include_directories(remat::highs SYSTEM INTERFACE "${REMAT_HIGHS_INCLUDE}" "${REMAT_HIGHS_INCLUDE_PARENT}")
