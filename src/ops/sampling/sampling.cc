#include "ops/sampling/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/align.h"
#include "base/check.h"
#include "ops/sampling/detail/mass.h"
#include "ops/sampling/detail/sampler.h"

namespace hayate::ops {
namespace sampling {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Tokens whose masses are summed together; a draw looks into one block.
constexpr int64_t kBlock = 1024;

struct Candidate {
  uint64_t key;
  uint64_t mass;
};

void ApplyPenalties(const SamplingRow& row, std::span<float> logits) {
  for (size_t i = 0; i < logits.size(); ++i) {
    const int32_t count = row.output_counts[i];
    if (count == 0) continue;
    const float x = logits[i];
    logits[i] = (x > 0.0f ? x / row.repetition_penalty : x * row.repetition_penalty) -
                (row.frequency_penalty * static_cast<float>(count) + row.presence_penalty);
  }
}

void ApplyMask(const uint32_t* bitmask, std::span<float> logits) {
  for (size_t begin = 0; begin < logits.size(); begin += 32) {
    const uint32_t allowed = bitmask[begin / 32];
    if (allowed == 0xFFFFFFFFu) continue;
    const size_t end = std::min(begin + 32, logits.size());
    for (size_t i = begin; i < end; ++i) {
      if ((allowed >> (i - begin) & 1) == 0) logits[i] = -kInfinity;
    }
  }
}

bool Adjusts(const SamplingRow& row) {
  return row.output_counts != nullptr || !row.bias.empty() || !row.banned.empty() ||
         row.bitmask != nullptr;
}

void Adjust(const SamplingRow& row, std::span<float> logits) {
  if (row.output_counts != nullptr) ApplyPenalties(row, logits);
  for (const auto& [id, value] : row.bias) logits[static_cast<size_t>(id)] += value;
  for (const int32_t id : row.banned) logits[static_cast<size_t>(id)] = -kInfinity;
  if (row.bitmask != nullptr) ApplyMask(row.bitmask, logits);
}

// The k highest keys of the row, in no order; 0 < k ≤ the row's length. `keys` has room for
// SelectCapacity(k). Whenever the room is full, all but the best k go and the threshold rises, so
// most of a row is passed over by a vector compare.
int64_t SelectCapacity(int64_t k) { return 2 * k + 16 * kCollectSlack; }

void SelectTop(const ScanKernels& kernels, std::span<const float> logits, int64_t k,
               uint64_t* keys) {
  const int64_t count = static_cast<int64_t>(logits.size());
  float threshold = -kInfinity;
  int64_t size = 0, next = 0;
  while (next < count) {
    size += kernels.collect(logits.data(), count, threshold, keys + size, SelectCapacity(k) - size,
                            &next);
    if (size <= k) continue;
    std::nth_element(keys, keys + (k - 1), keys + size, std::greater<>());
    size = k;
    threshold = LogitOf(keys[k - 1]);
  }
}

// The last key of the shortest prefix of the sorted candidates that holds `target`. Reorders them.
uint64_t TopPCutoff(std::span<Candidate> candidates, uint64_t target) {
  while (candidates.size() > 1) {
    const size_t half = candidates.size() / 2;
    std::nth_element(candidates.begin(), candidates.begin() + static_cast<long>(half),
                     candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.key > b.key; });
    uint64_t mass = 0;
    for (const Candidate& candidate : candidates.first(half)) mass += candidate.mass;
    if (mass >= target) {
      candidates = candidates.first(half);
    } else {
      target -= mass;
      candidates = candidates.subspan(half);
    }
  }
  return candidates[0].key;
}

}  // namespace

int32_t Sampler::Draw(const SamplingRow& row, std::span<const float> logits, float highest) {
  row_ = &row;
  logits_ = logits;
  highest_ = highest;
  inv_temperature_ = 1.0f / row.temperature;
  least_ = LeastMass(row.min_p);
  const size_t mark = workspace_.mark();
  const bool top_k = row.top_k > 0 && static_cast<size_t>(row.top_k) < logits.size();
  const int32_t token = top_k || row.top_p < 1.0f ? DrawFromBest(top_k) : DrawFromAll();
  workspace_.ResetTo(mark);
  return token;
}

uint64_t Sampler::MassOf(float logit) const { return Mass((logit - highest_) * inv_temperature_); }

int32_t Sampler::DrawFromAll() {
  const int64_t count = static_cast<int64_t>(logits_.size());
  const int64_t blocks = CeilDiv(count, kBlock);
  uint64_t* sums = workspace_.TakeArray<uint64_t>(blocks);
  uint64_t total = 0;
  for (int64_t b = 0; b < blocks; ++b) {
    sums[b] = kernels_.sum_mass(logits_.data() + b * kBlock, std::min(kBlock, count - b * kBlock),
                                highest_, inv_temperature_, least_);
    total += sums[b];
  }
  uint64_t left = RandomBelow(row_->seed, row_->position, total);
  int64_t block = 0;
  while (left >= sums[block]) left -= sums[block++];
  for (int64_t i = block * kBlock;; ++i) {
    const uint64_t mass = MassOf(logits_[static_cast<size_t>(i)]);
    if (mass < least_) continue;
    if (left < mass) return static_cast<int32_t>(i);
    left -= mass;
  }
}

int32_t Sampler::DrawFromBest(bool top_k) {
  const int64_t count = static_cast<int64_t>(logits_.size());
  uint64_t* keys = workspace_.TakeArray<uint64_t>(
      std::max(count + kCollectSlack, SelectCapacity(top_k ? row_->top_k : 0)));
  uint64_t cutoff = 0, total = 0;
  int64_t size;
  if (top_k) {
    SelectTop(kernels_, logits_, row_->top_k, keys);
    cutoff = *std::min_element(keys, keys + row_->top_k);
    size = CollectFrom(cutoff, keys);
  } else {
    total = kernels_.sum_mass(logits_.data(), count, highest_, inv_temperature_, 1);
    size = CollectMass(TopPTarget(row_->top_p, total), keys);
  }
  auto* candidates = workspace_.TakeArray<Candidate>(size);
  uint64_t collected = 0;
  for (int64_t i = 0; i < size; ++i) {
    candidates[i] = {keys[i], MassOf(LogitOf(keys[i]))};
    collected += candidates[i].mass;
  }
  if (top_k) total = collected;
  if (row_->top_p < 1.0f) {
    auto* sorted = workspace_.TakeArray<Candidate>(size);
    std::copy(candidates, candidates + size, sorted);
    cutoff = TopPCutoff({sorted, static_cast<size_t>(size)}, TopPTarget(row_->top_p, total));
  }
  const auto kept = [&](const Candidate& c) { return c.key >= cutoff && c.mass >= least_; };
  total = 0;
  for (int64_t i = 0; i < size; ++i) total += kept(candidates[i]) ? candidates[i].mass : 0;
  uint64_t left = RandomBelow(row_->seed, row_->position, total);
  for (int64_t i = 0;; ++i) {
    if (!kept(candidates[i])) continue;
    if (left < candidates[i].mass) return IdOf(candidates[i].key);
    left -= candidates[i].mass;
  }
}

// The keys from `cutoff` up, in order of id.
int64_t Sampler::CollectFrom(uint64_t cutoff, uint64_t* keys) const {
  const int64_t count = static_cast<int64_t>(logits_.size());
  int64_t next = 0;
  const int64_t size =
      kernels_.collect(logits_.data(), count, LogitOf(cutoff), keys, count + kCollectSlack, &next);
  return std::remove_if(keys, keys + size, [&](uint64_t key) { return key < cutoff; }) - keys;
}

// Keys of the highest logits, in order of id, that hold at least `target`: those within a margin of
// the highest, which is widened until it is enough. Nearly always the first margin is.
int64_t Sampler::CollectMass(uint64_t target, uint64_t* keys) const {
  const int64_t count = static_cast<int64_t>(logits_.size());
  for (const float margin : {6.0f, 12.0f, kInfinity}) {
    int64_t next = 0;
    const float threshold = highest_ - margin * row_->temperature;
    const int64_t size =
        kernels_.collect(logits_.data(), count, threshold, keys, count + kCollectSlack, &next);
    uint64_t mass = 0;
    for (int64_t i = 0; i < size; ++i) mass += MassOf(LogitOf(keys[i]));
    if (mass >= target || margin == kInfinity) return size;
  }
  return 0;  // not reached
}

SamplingResult Score(const ScanKernels& kernels, std::span<const float> logits, float highest,
                     int32_t token, int32_t num_top) {
  const int64_t count = static_cast<int64_t>(logits.size());
  const uint64_t total = kernels.sum_mass(logits.data(), count, highest, 1.0f, 1);
  const auto logprob = [&](float logit) { return LogProbability(logit, highest, total); };
  const float logit = logits[static_cast<size_t>(token)];
  SamplingResult result;
  result.token = token;
  result.logprob = logprob(logit);
  result.rank = static_cast<int32_t>(kernels.count_above(logits.data(), count, logit));
  for (int64_t i = 0; i < token; i += 1) {
    const int64_t equal = kernels.find(logits.data() + i, token - i, logit);
    if (i + equal < token) ++result.rank;
    i += equal;
  }
  const int64_t k = std::min<int64_t>(num_top, count);
  if (k <= 0) return result;
  std::vector<uint64_t> keys(static_cast<size_t>(SelectCapacity(k)));
  SelectTop(kernels, logits, k, keys.data());
  std::sort(keys.begin(), keys.begin() + k, std::greater<>());
  for (int64_t i = 0; i < k; ++i) {
    const uint64_t key = keys[static_cast<size_t>(i)];
    result.top.emplace_back(IdOf(key), logprob(LogitOf(key)));
  }
  return result;
}

SamplingResult Sampler::Sample(const SamplingRow& row, int32_t vocab_size) {
  const std::span<float> logits(row.logits, static_cast<size_t>(vocab_size));
  const Highest raw = kernels_.highest(logits.data(), vocab_size);
  if (raw.has_nan || raw.logit == kInfinity) return {.bad_logits = true};

  const size_t mark = workspace_.mark();
  std::span<const float> unadjusted = logits;
  float highest = raw.logit;
  if (Adjusts(row)) {
    if (row.num_logprobs >= 0) {
      float* copy = workspace_.TakeArray<float>(vocab_size);
      std::copy(logits.begin(), logits.end(), copy);
      unadjusted = {copy, logits.size()};
    }
    Adjust(row, logits);
    const Highest adjusted = kernels_.highest(logits.data(), vocab_size);
    // A tiny repetition penalty overflows; +∞ would leave no mass to draw from.
    if (adjusted.has_nan || adjusted.logit == kInfinity) {
      workspace_.ResetTo(mark);
      return {.bad_logits = true};
    }
    highest = adjusted.logit;
  }
  SamplingResult result;
  if (highest == -kInfinity) {
    result.bad_logits = true;
  } else {
    result.token = row.temperature < kGreedyTemperature
                       ? static_cast<int32_t>(kernels_.find(logits.data(), vocab_size, highest))
                       : Draw(row, logits, highest);
    if (row.num_logprobs >= 0) {
      result = Score(kernels_, unadjusted, raw.logit, result.token, row.num_logprobs);
    }
  }
  workspace_.ResetTo(mark);
  return result;
}

const ScanKernels& BestScanKernels() {
  static const ScanKernels& best = *std::ranges::find_if(
      AllScanKernels(), [](const ScanKernels& k) { return k.runs_on(DetectCpuFeatures()); });
  return best;
}

}  // namespace sampling

void Sample(Stream, Workspace& workspace, int32_t vocab_size, std::span<SamplingRow> rows,
            std::span<SamplingResult> results) {
  DCHECK_EQ(rows.size(), results.size());
  sampling::Sampler sampler(sampling::BestScanKernels(), workspace);
  for (size_t r = 0; r < rows.size(); ++r) results[r] = sampler.Sample(rows[r], vocab_size);
}

int64_t SampleWorkspaceBytes(int32_t vocab_size) {
  // Worst case, top-k of nearly the whole vocabulary with top-p and a copy of the raw logits: keys
  // with their selection room, two lists of candidates, the copy.
  const int64_t v = vocab_size;
  return 8 * (2 * v + 512) + 2 * 16 * v + 4 * v + 4 * static_cast<int64_t>(Workspace::kAlignment);
}

SamplingResult ScoreToken(std::span<const float> logits, int32_t token, int32_t num_top) {
  const sampling::ScanKernels& kernels = sampling::BestScanKernels();
  const sampling::Highest raw = kernels.highest(logits.data(), static_cast<int64_t>(logits.size()));
  const float infinity = std::numeric_limits<float>::infinity();
  if (raw.has_nan || std::abs(raw.logit) == infinity) {
    return {.token = token, .bad_logits = true};
  }
  return sampling::Score(kernels, logits, raw.logit, token, num_top);
}

}  // namespace hayate::ops
