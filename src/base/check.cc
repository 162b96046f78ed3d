#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace hayate::check_internal {

Failure::Failure(const char* condition, const char* file, int line) {
  stream_ << file << ':' << line << ": CHECK failed: " << condition << ' ';
}

Failure::~Failure() {
  std::fprintf(stderr, "%s\n", stream_.str().c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace hayate::check_internal
