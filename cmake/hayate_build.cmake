# Compiler settings shared by every target, and hayate_module(): one call per module of src/.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_C_COMPILER_LAUNCHER})
endif()

if(HAYATE_CUDA)
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_C_COMPILER_LAUNCHER})
  endif()
  # `-arch=sm_90a` would compile generic PTX as well, and CMake 3.25 does not know nvcc's C++20.
  set(CMAKE_CUDA_ARCHITECTURES 90a-real)
  enable_language(CUDA)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  find_package(CUDAToolkit 13 REQUIRED)
endif()

add_library(hayate_flags INTERFACE)
if(HAYATE_CUDA)
  add_custom_target(gpu_tests)  # all programs of tests that need a GPU
  # What sees a device gets this too: tensor and the modules above it.
  add_library(hayate_cuda INTERFACE)
  target_compile_definitions(hayate_cuda INTERFACE HAYATE_CUDA)
  target_include_directories(hayate_cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_options(hayate_cuda INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:--expt-relaxed-constexpr -Werror all-warnings>")
  target_link_libraries(hayate_cuda INTERFACE CUDA::cudart_static)
endif()
target_include_directories(hayate_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(hayate_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wno-missing-field-initializers -Werror>
  # g++ 12 sees overlaps in std::string that are not there (GCC bug 105651).
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>
  # std::stable_sort of libstdc++ 12 asks for what it calls deprecated itself.
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-deprecated-declarations>
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
target_link_libraries(hayate_flags INTERFACE Threads::Threads)
if(HAYATE_SANITIZE)
  add_compile_options(-fsanitize=${HAYATE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HAYATE_SANITIZE})
endif()
if(HAYATE_FUZZERS)
  # The code under test reports its coverage too, or libFuzzer would search blindly.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# hayate_module(NAME DEPS <modules and libraries>...)
#
# Builds src/NAME/**/*.cc into the static library hayate_NAME; the folders cuda/ and sm90/ (.cc and
# .cu) only with HAYATE_CUDA. Files ending in _test.cc become the test program NAME_test, _gpu_test.cc
# the program NAME_gpu_test that needs a GPU and is no part of ctest, _bench.cc the Google Benchmark
# program NAME_bench, and every _fuzz.cc a libFuzzer program of its own. A DEPS entry that names a module links that module; anything else is
# a library target. TEST_DEPS are linked to the tests alone.
function(hayate_module name)
  cmake_parse_arguments(ARG "" "" "DEPS;TEST_DEPS" ${ARGN})
  set(dir ${CMAKE_CURRENT_SOURCE_DIR}/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${dir}/*.cc)
  set(gpu_tests ${sources})
  list(FILTER gpu_tests INCLUDE REGEX "_gpu_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_gpu_test\\.cc$")
  if(HAYATE_CUDA)
    file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${dir}/*.cu)
    list(APPEND sources ${kernels})
  else()
    list(FILTER sources EXCLUDE REGEX "/(cuda|sm90)/")
  endif()
  set(tests ${sources})
  set(benches ${sources})
  set(fuzzers ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.cc$")
  if(name STREQUAL "bench")  # the product's own benchmarks, no Google Benchmark programs
    set(benches "")
  else()
    list(FILTER sources EXCLUDE REGEX "_bench\\.cc$")
  endif()
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")

  _hayate_link_names(deps ${ARG_DEPS})
  _hayate_link_names(test_deps ${ARG_TEST_DEPS})
  if(sources)
    add_library(hayate_${name} STATIC ${sources})
    target_link_libraries(hayate_${name} PUBLIC hayate_flags ${deps})
  else()
    add_library(hayate_${name} INTERFACE)
    target_link_libraries(hayate_${name} INTERFACE hayate_flags ${deps})
  endif()

  if(HAYATE_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE hayate_${name} ${test_deps} hayate_unit_main GTest::gmock)
    # Sanitizers slow the models down tenfold.
    set(timeout_s 300)
    if(HAYATE_SANITIZE)
      set(timeout_s 1800)
    endif()
    gtest_discover_tests(${name}_test DISCOVERY_MODE PRE_TEST TEST_PREFIX "${name}."
      WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} PROPERTIES TIMEOUT ${timeout_s})
  endif()
  if(HAYATE_TESTS AND HAYATE_CUDA AND gpu_tests)
    add_executable(${name}_gpu_test ${gpu_tests})
    add_dependencies(gpu_tests ${name}_gpu_test)
    target_link_libraries(${name}_gpu_test PRIVATE hayate_${name} ${test_deps} hayate_unit_main GTest::gmock)
  endif()
  if(HAYATE_BENCHES AND benches)
    add_executable(${name}_bench ${benches})
    target_link_libraries(${name}_bench PRIVATE hayate_${name} benchmark::benchmark_main)
  endif()
  if(HAYATE_FUZZERS)
    foreach(fuzzer ${fuzzers})
      get_filename_component(target ${fuzzer} NAME_WE)
      add_executable(${target} ${fuzzer})
      target_compile_options(${target} PRIVATE -fsanitize=fuzzer)
      target_link_options(${target} PRIVATE -fsanitize=fuzzer)
      target_link_libraries(${target} PRIVATE hayate_${name} ${test_deps})
    endforeach()
  endif()
endfunction()

# Turns module names into target names; leaves library targets as they are.
function(_hayate_link_names out)
  set(names "")
  foreach(dep ${ARGN})
    if(IS_DIRECTORY ${CMAKE_SOURCE_DIR}/src/${dep})
      list(APPEND names hayate_${dep})
    else()
      list(APPEND names ${dep})
    endif()
  endforeach()
  set(${out} ${names} PARENT_SCOPE)
endfunction()
