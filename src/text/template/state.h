#pragma once
// What one rendering may spend and what it owns. Every operation that can grow with the template's
// input charges the State, so that a hostile or mistaken template ends with an error.

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/template/value.h"

namespace hayate::text::jinja {

struct RenderLimits {
  int64_t max_steps = 4'000'000;                // statements, expressions and elements visited
  size_t max_output_bytes = size_t{64} << 20;   // of the result, and of any one string
  size_t max_memory_bytes = size_t{512} << 20;  // of all values made, freed or not
  int max_depth = 600;                          // statements and expressions inside one another
};

struct RenderOptions {
  RenderLimits limits;
  std::tm now{};  // the local time that strftime_now() formats
};

// Nested deeper than this, a container would make recursive code (printing, comparing, freeing)
// deep.
inline constexpr int kMaxValueDepth = 200;
// As in jinja2's sandbox.
inline constexpr int64_t kMaxRange = 100'000;

class State {
 public:
  explicit State(const RenderOptions& options);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const RenderOptions& options() const { return options_; }

  Status Step(int64_t count = 1);
  // Counts `bytes` before they are allocated.
  Status Charge(size_t bytes);
  // Refuses a string of this size; call it before building one whose size the template chooses.
  Status CheckStringSize(size_t bytes) const;

  // Values made at run time: charged, and refused when too large or too deep.
  Result<Value> NewString(std::string text);
  Result<Value> NewList(std::vector<Value> items);
  Result<Value> NewTuple(std::vector<Value> items);
  Result<Value> NewSequence(Sequence sequence);
  Result<Value> NewDict(Dict dict);
  // Owned by the State until the rendering ends: macros and namespaces may refer to each other.
  Result<Value> NewObject(Object object);

  // Levels of recursion in use; see DepthGuard.
  int depth = 0;

 private:
  const RenderOptions& options_;
  int64_t steps_ = 0;
  size_t memory_bytes_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;
};

// Holds one level of recursion; Check() before going deeper.
class DepthGuard {
 public:
  explicit DepthGuard(State& state) : state_(state) { ++state_.depth; }
  ~DepthGuard() { --state_.depth; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  Status Check() const;

 private:
  State& state_;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> keyword;
};

// Filters, methods and global functions share one shape: `self` is the filtered value, the
// receiver, or None.
using Function = Result<Value> (*)(State& state, const Value& self, const Arguments& arguments);
struct NamedFunction {
  std::string_view name;
  Function function;
};

}  // namespace hayate::text::jinja
