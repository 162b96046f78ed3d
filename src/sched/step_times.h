#pragma once
// What steps took, learned from the steps themselves: how many prompt tokens take as long as the
// answers beside them, so that a step with both takes twice as long as one without prompts.
// Owner: engine thread.

#include <array>
#include <cstdint>
#include <optional>

namespace hayate::sched {

class StepTimes {
 public:
  // A step of `decodes` rows that decode and so many tokens of prompts took `ns`.
  void Add(int32_t decodes, int32_t prompt_tokens, double ns);

  // The prompt tokens that double a step of `decodes` rows; nothing where no such step, or none
  // with prompts, was seen of late.
  std::optional<int32_t> DoublingTokens(int32_t decodes) const;

 private:
  // Rows [2^c, 2^(c + 1)).
  static constexpr size_t kClasses = 16;
  static size_t ClassOf(int32_t decodes);
  // Contexts grow: a time says something for so many steps.
  static constexpr uint64_t kFreshSteps = 256;

  struct DecodeTime {
    double ns = 0.0;
    uint64_t step = 0;  // the last one that it was seen in; 0: never
  };
  bool Fresh(const DecodeTime& time) const;
  // Of the class of so many rows, or of the nearest smaller one, which is no slower.
  std::optional<double> DecodeNs(int32_t decodes) const;

  std::array<DecodeTime, kClasses> decode_;
  std::optional<double> token_ns_;  // of a prompt token beside answers
  uint64_t num_steps_ = 0;
};

}  // namespace hayate::sched
