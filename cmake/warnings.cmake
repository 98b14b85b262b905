# Warnings for our own targets only, never for those who link them.
add_library(spillway_warnings INTERFACE)
target_compile_options(spillway_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -Wshadow>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${SPILLWAY_WERROR}>>:-Werror>)
