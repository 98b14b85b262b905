# Warnings for our own targets only, never for those who link them.
set(SPILLWAY_WARNINGS -Wall -Wextra -Wconversion -Wshadow)
if(SPILLWAY_WERROR)
  list(APPEND SPILLWAY_WARNINGS -Werror)
endif()

function(spillway_warnings target)
  foreach(option IN LISTS SPILLWAY_WARNINGS)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${option}>)
  endforeach()
endfunction()
