#pragma once
// What steps take, learned from the steps themselves: a sum of parts that grow with the rows that
// decode, the keys they attend, the tokens of prompts beside them and how deep in its prompt those
// lie. So much a step's time says of steps that were never seen, such as the same one without
// prompts. Owner: engine thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace hayate::sched {

// What a step computes.
struct StepLoad {
  int32_t decodes = 0;        // rows that decode
  int64_t keys = 0;           // that those attend, together
  int32_t prompt_tokens = 0;  // of all prompts
  int32_t position = 0;       // where the furthest chunk of a prompt begins
};

class StepTimes {
 public:
  // A step took `ns`. One without rows that decode says nothing here.
  void Add(const StepLoad& load, double ns);

  // The most prompt tokens with which a step like `load` takes `times` as long as without prompts,
  // 0 or more. Nothing before steps of both kinds were seen, or where prompts seem to cost nothing.
  std::optional<int32_t> PromptTokensWithin(const StepLoad& load, double times) const;

 private:
  // A time is the sum of its parts' costs: of a step, a row, a key, a step with prompts, a prompt
  // token, and a position of its furthest chunk.
  enum Part { kStep, kRow, kKey, kMixed, kToken, kPosition, kParts };
  using Parts = std::array<double, kParts>;
  static Parts PartsOf(const StepLoad& load);
  // The costs, ns, that fit the steps seen best.
  Parts Costs() const;

  // Normal equations of the relative errors, in which older steps count less.
  std::array<Parts, kParts> products_ = {};
  Parts sums_ = {};
  bool seen_plain_ = false, seen_mixed_ = false;  // without prompts, with prompts
};

}  // namespace hayate::sched
