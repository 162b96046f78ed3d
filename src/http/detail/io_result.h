#pragma once
// How a read or a write on a socket came out.

#include <cstddef>

namespace hayate::http {

struct IoResult {
  enum class Kind { kOk, kWouldBlock, kEnd, kError };
  Kind kind;
  size_t num_bytes = 0;  // > 0 exactly when kOk
  int error = 0;         // errno when kError
};

}  // namespace hayate::http
