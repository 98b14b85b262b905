# Every public header compiles alone: a source for each, in one library for each header of LibTorch that costs most.
# Such a library has that header precompiled, and holds only headers of ours that include it anyway, by themselves or
# through others of ours, so that the check stays what it would be without.
set(costly_headers torch/optim/optimizer.h ATen/core/Tensor.h)  # The first includes the second.

# The first of costly_headers that `header` brings in; nothing if none.
function(costly_header_of header result)
  set(seen "")
  set(pending "${header}")
  set(found "")
  while(pending)
    list(POP_FRONT pending current)
    if(current IN_LIST seen OR NOT EXISTS "${SPILLWAY_INCLUDE_DIR}/${current}")
      continue()
    endif()
    list(APPEND seen "${current}")
    file(STRINGS "${SPILLWAY_INCLUDE_DIR}/${current}" includes REGEX "^#include <.*>")
    list(TRANSFORM includes REPLACE "^#include <(.*)>.*" "\\1")
    list(APPEND found ${includes})
    list(FILTER includes INCLUDE REGEX "^spillway/")
    list(APPEND pending ${includes})
  endwhile()
  set(${result} "" PARENT_SCOPE)
  foreach(costly IN LISTS costly_headers)
    if(costly IN_LIST found)
      set(${result} "${costly}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

add_custom_target(public_headers)
get_property(libraries GLOBAL PROPERTY SPILLWAY_LIBRARIES)
get_property(headers GLOBAL PROPERTY SPILLWAY_PUBLIC_HEADERS)
foreach(path IN LISTS headers)
  cmake_path(RELATIVE_PATH path BASE_DIRECTORY "${SPILLWAY_INCLUDE_DIR}" OUTPUT_VARIABLE header)
  costly_header_of("${header}" costly)
  string(MAKE_C_IDENTIFIER "public_headers_${costly}" library)
  if(NOT TARGET ${library})
    add_library(${library} OBJECT EXCLUDE_FROM_ALL)
    add_dependencies(public_headers ${library})
    set_target_properties(${library} PROPERTIES UNITY_BUILD OFF)
    target_link_libraries(${library} PRIVATE ${libraries})
    target_compile_options(${library} PRIVATE -O0)
    if(costly)
      target_precompile_headers(${library} PRIVATE <${costly}>)
    endif()
  endif()
  file(CONFIGURE OUTPUT "${header}.cpp" CONTENT "#include <${header}>\n")
  target_sources(${library} PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/${header}.cpp")
endforeach()

# Ninja runs in the build folder, so nothing else may meanwhile.
add_test(NAME public_headers
  COMMAND "${CMAKE_COMMAND}" --build "${PROJECT_BINARY_DIR}" --parallel 2 --target public_headers)
set_tests_properties(public_headers PROPERTIES
  LABELS system TIMEOUT 900 PROCESSORS 2 RESOURCE_LOCK build_folder ENVIRONMENT "NINJA_STATUS=")
