#include "spec/step_cost.h"

#include <algorithm>
#include <limits>

#include "base/align.h"
#include "base/check.h"
#include "base/rng.h"

namespace hayate::spec {
namespace {

constexpr int kRepeats = 3;                   // the quickest counts
constexpr int32_t kMaxMeasuredTokens = 1024;  // beyond, cost is a straight line
// Neighbours whose times differ by less need nothing between them.
constexpr double kSteep = 1.02;

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

Result<double> Measure(StepExecutor& executor, const Clock& clock, const StepPlan& plan) {
  double quickest = std::numeric_limits<double>::max();
  // The first one warms caches up.
  for (int repeat = -1; repeat < kRepeats; ++repeat) {
    const int64_t start_ns = clock.NowNs();
    executor.Submit(plan);
    const StepResult& result = executor.WaitOldest();
    RETURN_IF_ERROR(result.status);
    if (repeat >= 0) quickest = std::min(quickest, static_cast<double>(clock.NowNs() - start_ns));
  }
  return quickest;
}

// The middle of the neighbours between which a straight line can be most wrong; 0: it is good
// everywhere. Kernels work in tiles, and a line over their steps misjudges a draft by a fifth.
int32_t SteepestMiddle(const std::vector<StepCost::Point>& points) {
  double steepest = kSteep;
  int32_t middle = 0;
  for (size_t i = 1; i < points.size(); ++i) {
    const StepCost::Point &low = points[i - 1], &high = points[i];
    if (high.tokens - low.tokens < 2 || high.ns < steepest * low.ns) continue;
    steepest = high.ns / low.ns;
    middle = low.tokens + (high.tokens - low.tokens) / 2;
  }
  return middle;
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

double StepCost::MostNs(int32_t tokens) const {
  const auto point = std::ranges::lower_bound(points_, tokens, {}, &Point::tokens);
  return point == points_.end() ? Ns(tokens) : point->ns;
}

Result<StepCost> MeasureStepCost(StepExecutor& executor, const Clock& clock,
                                 const StepCostOptions& options) {
  const int32_t most = std::min(
      {options.max_step_tokens, kMaxMeasuredTokens, options.max_rows * (options.max_drafts + 1)});
  Rng rng(1);
  const int64_t begin_ns = clock.NowNs();
  std::vector<StepCost::Point> points;
  const auto measure = [&](int32_t tokens) -> Status {
    ASSIGN_OR_RETURN(const double ns, Measure(executor, clock, PlanOf(options, tokens, rng)));
    const auto after = std::ranges::upper_bound(points, tokens, {}, &StepCost::Point::tokens);
    points.insert(after, {tokens, ns});
    return OkStatus();
  };
  const auto in_time = [&] { return clock.NowNs() - begin_ns < options.budget_ns; };
  RETURN_IF_ERROR(measure(1));
  for (int32_t tokens = 2; tokens / 2 < most && in_time(); tokens *= 2) {
    RETURN_IF_ERROR(measure(std::min(tokens, most)));
  }
  while (in_time()) {
    const int32_t tokens = SteepestMiddle(points);
    if (tokens == 0) break;
    RETURN_IF_ERROR(measure(tokens));
  }
  return StepCost(std::move(points));
}

}  // namespace hayate::spec
