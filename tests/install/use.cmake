# cmake -DWAY=find_package|add_subdirectory|fetch_content -DSOURCE= -DBUILD= -DGENERATOR= -DPYTHON= -P use.cmake
# Builds the example, moves it, and runs it. Anything that goes wrong ends the script with what was printed.
function(run)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${ARGN}: ${failed}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect pattern)
  if(NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "expected ${pattern}, got\n${output}")
  endif()
endfunction()

set(folder ${BUILD}/tests/install/${WAY})
if(WAY STREQUAL "find_package")
  file(REMOVE_RECURSE ${folder} ${folder}.prefix ${folder}.moved)
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${folder}.prefix)
  file(RENAME ${folder}.prefix ${folder}.moved)
  run(${folder}.moved/bin/remat --version)
  set(options -S ${SOURCE}/examples/cpp -DCMAKE_PREFIX_PATH=${folder}.moved)
else()
  set(folder ${BUILD}/tests/install/sources)
  set(options -S ${SOURCE}/tests/install/consumer -DWAY=${WAY} -DREMAT_SOURCE=${SOURCE}
    -DPython_EXECUTABLE=${PYTHON} -DCMAKE_CXX_FLAGS=-O0)
endif()
run(${CMAKE_COMMAND} ${options} -B ${folder} -G ${GENERATOR})
if(NOT WAY STREQUAL "find_package" AND NOT DEFINED ENV{REMAT_LONG})
  # To compile the library once more is for `make test-long`.
  return()
endif()
cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
run(${CMAKE_COMMAND} --build ${folder} --parallel ${cores})

# Only the program and the library that goes with it.
file(REMOVE_RECURSE ${folder}.program)
file(COPY ${folder}/plan ${folder}/libhighs.so DESTINATION ${folder}.program)
run(${folder}.program/plan)
expect("^optimal: 6291456 of 10485760 bytes, overhead 0.1666")
run(ldd ${folder}.program/plan)
expect("libhighs.so => ${folder}.program/libhighs.so")
