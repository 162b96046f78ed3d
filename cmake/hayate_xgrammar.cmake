# xgrammar's C++ core as the static library `xgrammar`, from its source distribution on PyPI (fetched
# once into the user's cache by tools/fetch_xgrammar.sh, which pins the sha256). Its own CMake project
# asks for link-time optimisation and -Werror of a compiler we do not choose, so the sources are
# listed here instead; its headers count as system headers.
execute_process(
  COMMAND ${CMAKE_SOURCE_DIR}/tools/fetch_xgrammar.sh
  OUTPUT_VARIABLE XGRAMMAR_SOURCE_DIR OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE xgrammar_fetched)
if(NOT xgrammar_fetched EQUAL 0)
  message(FATAL_ERROR "the sources of xgrammar are missing (see above)")
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tools/fetch_xgrammar.sh)

file(GLOB_RECURSE xgrammar_sources ${XGRAMMAR_SOURCE_DIR}/cpp/*.cc)
list(FILTER xgrammar_sources EXCLUDE REGEX "/cpp/tvm_ffi/")  # the Python bindings
add_library(xgrammar STATIC EXCLUDE_FROM_ALL ${xgrammar_sources})
set_target_properties(xgrammar PROPERTIES CXX_STANDARD 17)
target_include_directories(xgrammar SYSTEM PUBLIC
  ${XGRAMMAR_SOURCE_DIR}/include ${XGRAMMAR_SOURCE_DIR}/3rdparty/dlpack/include)
target_include_directories(xgrammar SYSTEM PRIVATE ${XGRAMMAR_SOURCE_DIR}/3rdparty/picojson)
target_compile_options(xgrammar PRIVATE -w $<$<CONFIG:Debug>:-O2>)  # sanitized, a schema would outlast its time limit
target_compile_definitions(xgrammar PUBLIC XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0
  XGRAMMAR_LOG_CUSTOMIZE=1)  # messages come to src/grammar/xgrammar_binding.cc
target_link_libraries(xgrammar PUBLIC Threads::Threads)

# For src/grammar/detail/text_parser.cc, which reads the parser's states: headers that are no part of
# the library's interface.
set(XGRAMMAR_INTERNAL_HEADERS -isystem ${XGRAMMAR_SOURCE_DIR}/cpp
  -isystem ${XGRAMMAR_SOURCE_DIR}/3rdparty/picojson)
