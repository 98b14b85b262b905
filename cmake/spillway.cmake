# The functions that the folders' CMakeLists.txt use.

# Headers are reached as <spillway/offload/x.hpp> in the tree and when installed: in the tree through links.
set(SPILLWAY_INCLUDE_DIR "${PROJECT_BINARY_DIR}/include")

# spillway_module(offload SOURCES a.cpp HEADERS a.hpp PUBLIC lib... PRIVATE lib... [MODULE folder])
# A static library `spillway_offload`, alias `spillway::offload`, whose headers are <spillway/offload/...>: under the
# library's name, unless MODULE gives the name that several libraries share.
function(spillway_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "MODULE" "SOURCES;HEADERS;PUBLIC;PRIVATE")
  _spillway_check_arguments(spillway_module)
  if(NOT arg_MODULE)
    set(arg_MODULE ${name})
  endif()
  _spillway_library(${name} ${arg_MODULE})
endfunction()

# spillway_cuda_library(offload_cuda MODULE offload SOURCES a.cu ... HEADERS a.hpp ... PUBLIC ... PRIVATE ...)
# The part of a module that needs CUDA, in a target of its own. Nothing where SPILLWAY_CUDA is off.
function(spillway_cuda_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "MODULE" "SOURCES;HEADERS;PUBLIC;PRIVATE")
  _spillway_check_arguments(spillway_cuda_library)
  if(SPILLWAY_CUDA AND NOT SPILLWAY_OFFLOAD_ONLY)
    list(APPEND arg_PRIVATE CUDA::cudart)
    _spillway_library(${name} ${arg_MODULE})
  endif()
endfunction()

# spillway_test(NAME x_test SOURCES x_test.cpp LIBS lib... LABELS unit [TIMEOUT seconds])
# A ctest entry for the tests in these files. The tests of a folder share one program, <folder>_tests: LibTorch's headers
# take longer to compile than all that is behind them, and one program reads them once.
function(spillway_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;TIMEOUT" "SOURCES;LIBS;LABELS")
  _spillway_check_arguments(spillway_test)
  if(NOT arg_LABELS)
    message(FATAL_ERROR "spillway_test(NAME ${arg_NAME}): give LABELS (unit, property, fault, golden, ranks, system, gpu or slow)")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  _spillway_test_program(program)
  target_sources(${program} PRIVATE ${arg_SOURCES})
  target_link_libraries(${program} PRIVATE ${arg_LIBS})
  set(files ${arg_SOURCES})
  list(FILTER files INCLUDE REGEX "_test[.]cpp$")
  list(JOIN files "," files)
  add_test(NAME ${arg_NAME} COMMAND ${program} --in=${files})
  # Tests run beside each other: LibTorch's idle threads must not spin on a core that another test needs.
  set_tests_properties(${arg_NAME} PROPERTIES
    LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
    ENVIRONMENT "OMP_WAIT_POLICY=PASSIVE;${SPILLWAY_TEST_ENVIRONMENT}")
endfunction()

# spillway_child_program(x_child SOURCES x_child.cpp LIBS lib... MACRO X_CHILD)
# A program that this folder's tests start as a process of its own; they know its path as the macro.
function(spillway_child_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "MACRO" "SOURCES;LIBS")
  _spillway_check_arguments(spillway_child_program)
  _spillway_program(${name})
  spillway_start(${name} ${arg_MACRO})
endfunction()

# spillway_start(program MACRO): this folder's tests start the program, whose path they know as the macro.
function(spillway_start child macro)
  _spillway_test_program(program)
  target_compile_definitions(${program} PRIVATE ${macro}="$<TARGET_FILE:${child}>")
  add_dependencies(${program} ${child})
endfunction()

# For a folder whose tests do work of their own, rather than have the libraries do it.
function(spillway_test_optimized)
  _spillway_test_program(program)
  target_compile_options(${program} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>)
endfunction()

# What all of this folder's tests are compiled with.
function(spillway_test_definitions)
  _spillway_test_program(program)
  target_compile_definitions(${program} PRIVATE ${ARGN})
endfunction()

# spillway_bench(NAME x_bench SOURCES x_bench.cpp LIBS lib...)
# A Google Benchmark program; a ctest entry runs the least of each benchmark, so that none rots.
function(spillway_bench)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;TIMEOUT" "SOURCES;LIBS")
  _spillway_check_arguments(spillway_bench)
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  _spillway_program(${arg_NAME})
  target_link_libraries(${arg_NAME} PRIVATE benchmark::benchmark_main)
  if(SPILLWAY_BUILD_TESTS)
    add_test(NAME ${arg_NAME} COMMAND ${arg_NAME} --benchmark_min_time=0)
    set_tests_properties(${arg_NAME} PROPERTIES
      LABELS bench TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "OMP_WAIT_POLICY=PASSIVE")
  endif()
endfunction()

# spillway_fuzzer(NAME x_fuzzer SOURCES x_fuzzer.cpp LIBS lib...)
# A libFuzzer program in build/fuzz/fuzzers, where `make fuzz` finds it; its seeds are in tests/fuzz/corpus/x_fuzzer.
function(spillway_fuzzer)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES;LIBS")
  _spillway_check_arguments(spillway_fuzzer)
  _spillway_program(${arg_NAME})
  target_link_options(${arg_NAME} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${arg_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fuzzers")
endfunction()

# --- what the functions above share ---

function(_spillway_check_arguments caller)
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${caller}: unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
endfunction()

# Uses the caller's arg_*.
function(_spillway_library name module)
  set(target spillway_${name})
  file(MAKE_DIRECTORY "${SPILLWAY_INCLUDE_DIR}/spillway")
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}" "${SPILLWAY_INCLUDE_DIR}/spillway/${module}" SYMBOLIC)
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(spillway::${name} ALIAS ${target})
  list(TRANSFORM arg_HEADERS PREPEND "${SPILLWAY_INCLUDE_DIR}/spillway/${module}/" OUTPUT_VARIABLE headers)
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS "${SPILLWAY_INCLUDE_DIR}" FILES ${headers})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY SPILLWAY_LIBRARIES ${target})
  set_property(GLOBAL APPEND PROPERTY SPILLWAY_PUBLIC_HEADERS ${headers})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  spillway_warnings(${target})
  install(TARGETS ${target} EXPORT SpillwayTargets ARCHIVE FILE_SET HEADERS)
endfunction()

# The name of the folder's test program, which the first call makes.
function(_spillway_test_program result)
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME folder)
  set(program ${folder}_tests)
  if(NOT TARGET ${program})
    add_executable(${program})
    target_link_libraries(${program} PRIVATE spillway_test_main GTest::gmock)
    target_compile_options(${program} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O0>)  # Compiled far quicker, and no slower to run.
    spillway_warnings(${program})
  endif()
  set(${result} ${program} PARENT_SCOPE)
endfunction()

function(_spillway_program name)
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS})
  spillway_warnings(${name})
endfunction()
