#include "app/expert_record.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "comm/expert_plan_json.h"

namespace hayate::app {
namespace {

std::vector<int64_t> Minus(const std::vector<int64_t>& to, const std::vector<int64_t>& from) {
  std::vector<int64_t> difference(to.size());
  std::ranges::transform(to, from, difference.begin(), std::minus());
  return difference;
}

// Choices of experts, of all layers, below which their balance says nothing.
constexpr int64_t kFewestChoices = 1000;

}  // namespace

ExpertRecord::ExpertRecord(const exec::LocalExecutor& executor, obs::Registry& registry,
                           const std::string& model_name)
    : executor_(executor),
      balance_(registry.AddGauge({"sglang:eplb_balancedness",
                                  "Mean rows of a rank's experts / the fullest rank's",
                                  {{"model_name", model_name}}})),
      rebalances_(registry.AddCounter({"hayate:eplb_rebalances_total",
                                       "Times that experts were moved between ranks",
                                       {{"model_name", model_name}}})),
      moved_(registry.AddCounter({"hayate:eplb_moved_experts_total",
                                  "Copies of experts that moved, of all layers",
                                  {{"model_name", model_name}}})),
      seen_(executor.ExpertCounts()) {
  balance_.Set(1);
}

Status ExpertRecord::CheckCounted() const {
  if (!executor_.ExpertCounts().empty()) return OkStatus();
  return Status(ErrorCode::kUnsupported,
                "no experts are counted: the model has none, or it runs on GPUs without --ep-size "
                "or --enable-dp-attention");
}

Status ExpertRecord::Start() {
  RETURN_IF_ERROR(CheckCounted());
  const std::lock_guard lock(mutex_);
  from_ = executor_.ExpertCounts();
  to_.reset();
  return OkStatus();
}

Status ExpertRecord::Stop() {
  const std::lock_guard lock(mutex_);
  if (!from_ || to_) return Status(ErrorCode::kInvalidArgument, "no expert record is running");
  to_ = executor_.ExpertCounts();
  return OkStatus();
}

Result<std::string> ExpertRecord::Dump() {
  RETURN_IF_ERROR(CheckCounted());
  const std::lock_guard lock(mutex_);
  if (!from_) {
    return Status(ErrorCode::kInvalidArgument,
                  "there is no expert record: /start_expert_distribution_record begins one");
  }
  const std::vector<int64_t> now = to_.value_or(executor_.ExpertCounts());
  const std::vector<int64_t> recorded = Minus(now, *from_);
  if (!to_) from_ = now;
  return comm::WriteExpertCounts(recorded, executor_.num_experts());
}

void ExpertRecord::UpdateMetrics() {
  const exec::RebalanceStats stats = executor_.rebalance_stats();
  rebalances_.Add(static_cast<uint64_t>(stats.rebalances) - rebalances_.value());
  moved_.Add(static_cast<uint64_t>(stats.moved) - moved_.value());
  std::vector<int64_t> now = executor_.ExpertCounts();
  const std::vector<int64_t> recent = Minus(now, seen_);
  int64_t choices = 0;
  for (const int64_t count : recent) choices += count;
  if (choices < kFewestChoices) return;
  balance_.Set(executor_.ExpertBalance(recent));
  seen_ = std::move(now);
}

}  // namespace hayate::app
