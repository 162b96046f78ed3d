#include "spec/step_cost.h"

#include <algorithm>
#include <limits>

#include "base/align.h"
#include "base/check.h"
#include "base/rng.h"

namespace hayate::spec {
namespace {

constexpr int kRepeats = 3;                   // the quickest counts
constexpr int64_t kBudgetNs = 2'000'000'000;  // no larger step is tried once so much has passed
constexpr int32_t kMaxMeasuredTokens = 1024;  // beyond, cost is a straight line

// A step of `num_tokens` tokens in rows that verify as many drafts as they may, each sequence at
// its beginning, in pages of its own as far as there are enough.
StepPlan PlanOf(const StepCostOptions& options, int32_t num_tokens, Rng& rng) {
  StepPlan plan;
  const int32_t row_tokens = options.max_drafts + 1;
  const int32_t row_pages = CeilDiv(row_tokens, options.layout->page_tokens);
  SamplingParams greedy;
  greedy.temperature = 0.0f;
  greedy.max_new_tokens = row_tokens;
  for (int32_t r = 0; plan.num_tokens < num_tokens; ++r) {
    const SlotId slot{r};
    plan.starts.push_back({.slot = slot, .sampling = greedy});
    for (size_t g = 0; g < options.layout->groups.size(); ++g) {
      const bool is_state = options.layout->groups[g].kind == CacheKind::kState;
      for (int32_t i = 0; i < (is_state ? 1 : row_pages); ++i) {
        const PageId page{1 + (r * row_pages + i) % (options.pool_pages[g] - 1)};
        plan.page_updates.push_back({slot, static_cast<int32_t>(g), i, page});
      }
    }
    const int32_t tokens = std::min(row_tokens, num_tokens - plan.num_tokens);
    // Drafts that stand whatever is drawn: every position is sampled.
    StepRow row{.slot = slot,
                .begin = 0,
                .end = tokens,
                .first_token = static_cast<int32_t>(plan.tokens.size()),
                .samples = true,
                .num_drafts = tokens - 1,
                .forced_accepts = tokens - 1};
    for (int32_t i = 0; i < tokens; ++i) {
      plan.tokens.push_back(
          static_cast<TokenId>(rng.Below(static_cast<uint32_t>(options.vocab_size))));
    }
    plan.rows.push_back(row);
    plan.num_tokens += tokens;
  }
  return plan;
}

}  // namespace

StepCost::StepCost(std::vector<Point> points) : points_(std::move(points)) {
  CHECK(!points_.empty());
  for (size_t i = 1; i < points_.size(); ++i) {
    CHECK_GT(points_[i].tokens, points_[i - 1].tokens);
    points_[i].ns = std::max(points_[i].ns, points_[i - 1].ns);
  }
}

double StepCost::Ns(int32_t tokens) const {
  if (tokens <= points_.front().tokens || points_.size() == 1) return points_.front().ns;
  const auto after = std::ranges::upper_bound(points_, tokens, {},
                                              [](const Point& point) { return point.tokens; });
  const Point& high = after == points_.end() ? points_.back() : *after;
  const Point& low = *(&high - 1);
  const double slope = (high.ns - low.ns) / (high.tokens - low.tokens);
  return low.ns + slope * (tokens - low.tokens);
}

Result<StepCost> MeasureStepCost(StepExecutor& executor, const Clock& clock,
                                 const StepCostOptions& options) {
  const int32_t most = std::min(
      {options.max_step_tokens, kMaxMeasuredTokens, options.max_rows * (options.max_drafts + 1)});
  Rng rng(1);
  std::vector<StepCost::Point> points;
  const int64_t begin_ns = clock.NowNs();
  // 1, 2, 3, 4, 6, 8, 12, 16, 24, …
  for (int32_t tokens = 1; tokens <= most && clock.NowNs() - begin_ns < kBudgetNs;
       tokens = tokens < 3                     ? tokens + 1
                : (tokens & (tokens - 1)) == 0 ? tokens + tokens / 2
                                               : tokens + tokens / 3) {
    const StepPlan plan = PlanOf(options, tokens, rng);
    double quickest = std::numeric_limits<double>::max();
    // The first one warms caches up.
    for (int repeat = -1; repeat < kRepeats; ++repeat) {
      const int64_t start_ns = clock.NowNs();
      executor.Submit(plan);
      const StepResult& result = executor.WaitOldest();
      RETURN_IF_ERROR(result.status);
      if (repeat >= 0) quickest = std::min(quickest, static_cast<double>(clock.NowNs() - start_ns));
    }
    points.push_back({tokens, quickest});
  }
  return StepCost(std::move(points));
}

}  // namespace hayate::spec
