# Targets that check the source itself; ./test builds them, a plain build does not.
#   check_includes   every #include against the table of ARCHITECTURE.md
#   check_headers    every header of src/ compiles alone
#   check_format     clang-format 14 would change nothing
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_custom_target(check_includes
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_includes.py
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} USES_TERMINAL VERBATIM)
  add_custom_target(check_format
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_format.py
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} USES_TERMINAL VERBATIM)
endif()

# One translation unit per header that includes nothing else. Each module's headers are compiled with
# the include paths of that module alone, so a missing DEPS entry shows here as well.
add_custom_target(check_headers)
file(GLOB module_dirs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*)
foreach(dir ${module_dirs})
  get_filename_component(module ${dir} NAME)
  if(TARGET hayate_${module})
    set(owner hayate_${module})
  elseif(module STREQUAL "app" AND TARGET hayate)
    set(owner hayate)
  else()
    continue()
  endif()
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/src ${dir}/*.h)
  set(units "")
  foreach(header ${headers})
    if(header MATCHES "/testing/" AND NOT HAYATE_TESTS)
      continue()
    endif()
    set(unit ${CMAKE_BINARY_DIR}/check_headers/${header}.cc)
    file(CONFIGURE OUTPUT ${unit} CONTENT "#include \"${header}\"\n")
    list(APPEND units ${unit})
  endforeach()
  if(units)
    add_library(check_headers_${module} OBJECT EXCLUDE_FROM_ALL ${units})
    if(owner STREQUAL "hayate")
      # A program cannot be linked against; its libraries and include paths can be had.
      target_link_libraries(check_headers_${module} PRIVATE $<TARGET_PROPERTY:hayate,LINK_LIBRARIES>)
      target_include_directories(check_headers_${module} PRIVATE $<TARGET_PROPERTY:hayate,INCLUDE_DIRECTORIES>)
    else()
      target_link_libraries(check_headers_${module} PRIVATE ${owner})
    endif()
    if(HAYATE_TESTS)
      target_link_libraries(check_headers_${module} PRIVATE GTest::gmock)
    endif()
    # Only whether it compiles matters.
    target_compile_options(check_headers_${module} PRIVATE -O0)
    add_dependencies(check_headers check_headers_${module})
  endif()
endforeach()
