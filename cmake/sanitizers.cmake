# SPILLWAY_SANITIZE applies to everything that is compiled here: a program with half of its parts instrumented
# reports what is not there.
if(SPILLWAY_SANITIZE)
  list(JOIN SPILLWAY_SANITIZE "," _sanitizers)
  add_compile_options(-fsanitize=${_sanitizers} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${_sanitizers})
  if("undefined" IN_LIST SPILLWAY_SANITIZE)
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  # For the tests' ctest entries.
  set(SPILLWAY_TEST_ENVIRONMENT "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1"
    "UBSAN_OPTIONS=print_stacktrace=1" "TSAN_OPTIONS=second_deadlock_stack=1")
  if(SPILLWAY_BUILD_FUZZERS)
    add_compile_options(-fsanitize=fuzzer-no-link)  # The code under test is what has to be measured for coverage.
  endif()
endif()
