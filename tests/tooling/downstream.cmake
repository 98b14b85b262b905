# Installs the build into a new prefix, then configures, builds and runs examples/downstream against it.
# Run by ctest: cmake -D BUILD=... -D SOURCE=... -D WORK=... -D TORCH=... -D CUDA_ROOT=... -P downstream.cmake
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "status ${status} from: ${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}/swap")
run(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${WORK}/prefix")
run(${CMAKE_COMMAND} -S "${SOURCE}/examples/downstream" -B "${WORK}/build" -G Ninja -DCMAKE_BUILD_TYPE=Release
  "-DCMAKE_PREFIX_PATH=${WORK}/prefix" "-DTorch_DIR=${TORCH}" "-DCUDAToolkit_ROOT=${CUDA_ROOT}")
run(${CMAKE_COMMAND} --build "${WORK}/build")
run("${WORK}/build/downstream" "${WORK}/swap")
if(NOT output MATCHES "agree bit for bit")
  message(FATAL_ERROR "the program printed: ${output}")
endif()
file(REMOVE_RECURSE "${WORK}")
