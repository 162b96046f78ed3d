// The main() of every unit test program.

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  // Programs log before they start threads. Left to the first of two threads, ThreadSanitizer takes
  // the registry's construction for a race: the guard of that static is inside libspdlog, which is
  // not instrumented.
  spdlog::default_logger_raw();
  return RUN_ALL_TESTS();
}
