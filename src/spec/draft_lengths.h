#pragma once
// How many drafts of each row a step verifies: as many as make the step's tokens come fastest.
//
// Draft i of row r stands with all those before it with chance a(r, i), which falls in i. A step of
// m drafts brings Σ rows' one token + Σ a of the drafts it verifies, and takes cost(tokens). The
// best m drafts are those with the largest a, which are a prefix in every row; m maximises
//
//   (rows + Σ of the m largest a) / cost(base tokens + m)
//
// Every m is looked at, so steps and plateaus of the cost do not stop the search; between measured
// sizes the larger one's time counts, so that no step of the cost is climbed unseen. What is chosen
// changes how long an answer takes, not the answer.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "spec/step_cost.h"

namespace hayate::spec {

class DraftLengths {
 public:
  struct Step {
    int32_t num_rows = 0;    // that draw a token, with drafts or without
    int32_t num_tokens = 0;  // of all rows, without drafts
    int32_t max_drafts = 0;  // of the step
  };
  // survival[r][i] = a(r, i), not rising in i; lengths[r] receives how many of them to verify.
  // Returns their sum.
  int32_t Choose(const StepCost& cost, const Step& step,
                 std::span<const std::span<const float>> survival, std::span<int32_t> lengths);

 private:
  std::vector<std::pair<float, int32_t>> drafts_;  // chance and row, likeliest first
};

}  // namespace hayate::spec
