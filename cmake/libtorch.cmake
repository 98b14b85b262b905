# LibTorch and the CUDA toolkit.
#
# LibTorch's own CMake package looks for a whole toolkit with CMake's deprecated FindCUDA, and changes the flags of
# every CUDA source. All that its targets need of it is the CUDA runtime, as `torch::cudart`; where that target exists
# the package leaves the rest alone. So it is made here, and the architectures stay ours to choose. `caffe2::mkl`
# likewise: the package would put MKL folders that don't exist before LibTorch's own in every program's run path.
set(TORCH_CUDA_ARCH_LIST "7.5" CACHE STRING "GPU architectures to compile for, as LibTorch spells them: 7.5;8.6")

if(SPILLWAY_CUDA)
  string(REPLACE "." "" CMAKE_CUDA_ARCHITECTURES "${TORCH_CUDA_ARCH_LIST}")
  string(REGEX REPLACE "[ ,]+" ";" CMAKE_CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 knows no CUDA20.
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # One runtime in a process: LibTorch's is shared.
endif()

if(NOT TARGET torch::cudart)
  add_library(torch::cudart INTERFACE IMPORTED)
  if(SPILLWAY_CUDA)
    target_link_libraries(torch::cudart INTERFACE CUDA::cudart)
  endif()
endif()
if(NOT TARGET caffe2::mkl)
  add_library(caffe2::mkl INTERFACE IMPORTED)
endif()

set(_log_level "${CMAKE_MESSAGE_LOG_LEVEL}")
set(CMAKE_MESSAGE_LOG_LEVEL ERROR)  # It warns of static libraries that the shared ones already contain.
find_package(Torch 2.6 REQUIRED)
set(CMAKE_MESSAGE_LOG_LEVEL "${_log_level}")
message(STATUS "LibTorch ${Torch_VERSION} in ${TORCH_INSTALL_PREFIX}")

# What our targets link; installed with them, it asks for the `torch` that find_package(Spillway) has found.
add_library(spillway_torch INTERFACE)
add_library(spillway::torch ALIAS spillway_torch)
# The standard library goes first: libtorch.so exports a std::filesystem of its own, of an older compiler, in which
# remove_all jumps to address 0.
target_link_libraries(spillway_torch INTERFACE stdc++ torch)
set_target_properties(spillway_torch PROPERTIES EXPORT_NAME torch)
install(TARGETS spillway_torch EXPORT SpillwayTargets)

# LibTorch's headers, compiled once: they take longer than all that our sources add to them. GCC takes such a header at
# any level of optimisation, if the macros that tell of the level are alike; other compilers ask for the same flags
# everywhere, and read the headers anew. So does a build without unity files, which finds the includes that a source
# forgot.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_UNITY_BUILD)
  set(SPILLWAY_PRECOMPILED_TORCH
    <ATen/Context.h>
    <ATen/Parallel.h>
    <ATen/TensorOperators.h>
    <torch/csrc/autograd/custom_function.h>
    <torch/nn/module.h>
    <torch/optim/adagrad.h>
    <torch/optim/adam.h>
    <torch/optim/adamw.h>
    <torch/optim/rmsprop.h>
    <torch/optim/sgd.h>
    <torch/serialize.h>)
endif()

# spillway_precompiled_torch(target...): these targets' sources include LibTorch's optimizers or modules. The first
# target that asks compiles them.
function(spillway_precompiled_torch)
  if(NOT SPILLWAY_PRECOMPILED_TORCH)
    return()
  endif()
  foreach(target IN LISTS ARGN)
    get_property(owner GLOBAL PROPERTY SPILLWAY_PRECOMPILED_TORCH_OWNER)
    if(owner)
      target_precompile_headers(${target} REUSE_FROM ${owner})
    else()
      target_precompile_headers(${target} PRIVATE ${SPILLWAY_PRECOMPILED_TORCH})
      set_property(GLOBAL PROPERTY SPILLWAY_PRECOMPILED_TORCH_OWNER ${target})
    endif()
    target_compile_options(${target} PRIVATE -fPIC -D__OPTIMIZE__=1 -U__NO_INLINE__)  # The same for all.
  endforeach()
endfunction()
