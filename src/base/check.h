#pragma once
// CHECK: invariants of our own code. Always on; a failure prints the condition, the place and the
// streamed values, then aborts. DCHECK is the same in builds without NDEBUG and costs nothing with
// it. Data that a client or a file controls never reaches a CHECK: that is a Status.

#include <sstream>

namespace hayate::check_internal {

// Collects the streamed message; its destructor aborts.
class Failure {
 public:
  Failure(const char* condition, const char* file, int line);
  [[noreturn]] ~Failure();
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

}  // namespace hayate::check_internal

#define CHECK(condition)                    \
  if (__builtin_expect(!!(condition), 1)) { \
  } else                                    \
    ::hayate::check_internal::Failure(#condition, __FILE__, __LINE__).stream()

#define CHECK_OP(a, op, b) CHECK((a)op(b)) << (a) << " vs " << (b) << ' '
#define CHECK_EQ(a, b) CHECK_OP(a, ==, b)
#define CHECK_NE(a, b) CHECK_OP(a, !=, b)
#define CHECK_LT(a, b) CHECK_OP(a, <, b)
#define CHECK_LE(a, b) CHECK_OP(a, <=, b)
#define CHECK_GT(a, b) CHECK_OP(a, >, b)
#define CHECK_GE(a, b) CHECK_OP(a, >=, b)

#ifdef NDEBUG
#define DCHECK(condition) \
  while (false) CHECK(condition)
#else
#define DCHECK(condition) CHECK(condition)
#endif
#define DCHECK_OP(a, op, b) DCHECK((a)op(b)) << (a) << " vs " << (b) << ' '
#define DCHECK_EQ(a, b) DCHECK_OP(a, ==, b)
#define DCHECK_NE(a, b) DCHECK_OP(a, !=, b)
#define DCHECK_LT(a, b) DCHECK_OP(a, <, b)
#define DCHECK_LE(a, b) DCHECK_OP(a, <=, b)
#define DCHECK_GT(a, b) DCHECK_OP(a, >, b)
#define DCHECK_GE(a, b) DCHECK_OP(a, >=, b)
