#pragma once
// Batches of sampler rows of every kind that serving makes, over logits that are smooth, full of
// ties, peaked, forbidden in part, or broken. For tests and benches.

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "ops/sampling/device_sampler.h"

namespace hayate::ops::testing {

class RandomBatch {
 public:
  RandomBatch(Rng& rng, int32_t vocab_size, int32_t num_rows) : vocab_size_(vocab_size) {
    last_tokens_.assign(static_cast<size_t>(num_rows), -1);
    for (int32_t r = 0; r < num_rows; ++r) {
      AddLogits(rng);
      AddRow(rng, r);
    }
  }

  // Over this object's arrays and the results below, which they fill.
  SampleRowsArgs HostArgs() {
    results_.assign(rows_.size(), {});
    top_ids_.assign(rows_.size() * kMaxTopLogprobs, -1);
    top_logprobs_.assign(rows_.size() * kMaxTopLogprobs, 0.0f);
    return {.kernel = SamplerKernelFor(rows_),
            .num_rows = static_cast<int32_t>(rows_.size()),
            .vocab_size = vocab_size_,
            .logits = logits_.data(),
            .rows = rows_.data(),
            .bias_ids = bias_ids_.data(),
            .bias_values = bias_values_.data(),
            .banned_ids = banned_ids_.data(),
            .bitmasks = bitmasks_.data(),
            .state = {.last_tokens = last_tokens_.data(), .counts = counts_.data()},
            .results = results_.data(),
            .top_ids = top_ids_.data(),
            .top_logprobs = top_logprobs_.data()};
  }

  int32_t vocab_size_;
  std::vector<float> logits_;
  std::vector<SamplerRow> rows_;
  std::vector<int32_t> bias_ids_, banned_ids_, counts_, last_tokens_;
  std::vector<float> bias_values_;
  std::vector<uint32_t> bitmasks_;
  std::vector<SampledToken> results_;
  std::vector<int32_t> top_ids_;
  std::vector<float> top_logprobs_;

 private:
  int32_t AnyId(Rng& rng) const {
    return static_cast<int32_t>(rng.Below(static_cast<uint32_t>(vocab_size_)));
  }

  void AddLogits(Rng& rng) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    const size_t begin = logits_.size();
    const float width = static_cast<float>(rng.Between(1, 12));
    const uint32_t kind = rng.Below(12);
    const bool forbids = rng.Below(2) == 0;
    for (int32_t i = 0; i < vocab_size_; ++i) {
      float x = width * rng.NextNormal();
      if (kind < 4) x = std::round(x);
      if (kind == 4) x = 3.0f;  // all equal
      if (kind == 5) x = x > 0.0f ? 0.0f : -0.0f;
      if (forbids && rng.Below(20) == 0) x = -kInf;
      logits_.push_back(x);
    }
    const auto at = [&]() -> float& { return logits_[begin + static_cast<size_t>(AnyId(rng))]; };
    if (rng.Below(4) == 0) at() = 60.0f;
    at() = -0.0f;
    if (kind == 6 && rng.Below(3) == 0) at() = std::nanf("");
    if (kind == 7 && rng.Below(3) == 0) at() = kInf;
    if (kind == 8 && rng.Below(3) == 0) {
      std::fill(logits_.begin() + static_cast<ptrdiff_t>(begin), logits_.end(), -kInf);
    }
  }

  void AddRow(Rng& rng, int32_t r) {
    SamplerRow row;
    rows_.push_back(row);
    if (rng.Below(12) == 0) return;  // padding
    const float temperatures[] = {0.0f, 0.01f, 0.7f, 1.0f, 1.7f, 100.0f};
    const float top_ps[] = {1.0f, 0.999f, 0.9f, 0.5f, 1e-6f};
    const float min_ps[] = {0.0f, 0.0f, 0.05f, 0.9f, 1.0f};
    row.seed = rng.NextU64();
    row.position = rng.Below(1000);
    row.logits_row = r;
    row.slot = rng.Below(8) == 0 ? -1 : r;
    row.num_logprobs = rng.Below(2) == 0 ? -1 : rng.Between(0, kMaxTopLogprobs);
    if (rng.Below(12) == 0) {
      row.scored_token = AnyId(rng);
      row.num_logprobs = rng.Between(0, kMaxTopLogprobs);
    }
    row.temperature = temperatures[rng.Below(6)];
    row.top_k = rng.Below(2) == 0 ? 0 : rng.Between(1, rng.Below(2) == 0 ? 50 : vocab_size_ + 5);
    row.top_p = top_ps[rng.Below(5)];
    row.min_p = min_ps[rng.Below(5)];
    if (row.scored_token < 0) AddAdjustments(rng, row);
    rows_.back() = row;
  }

  void AddAdjustments(Rng& rng, SamplerRow& row) {
    const auto vocab = static_cast<size_t>(vocab_size_);
    if (rng.Below(3) == 0) {
      row.counts_row = static_cast<int32_t>(counts_.size() / vocab);
      for (size_t i = 0; i < vocab; ++i) {
        counts_.push_back(rng.Below(4) == 0 ? rng.Between(1, 3) : 0);
      }
      row.repetition_penalty = rng.Below(20) == 0 ? 1e-38f : 1.0f + 0.5f * rng.NextFloat();
      row.frequency_penalty = rng.NextFloat() - 0.5f;
      row.presence_penalty = rng.NextFloat() - 0.5f;
    }
    row.banned_begin = static_cast<int32_t>(banned_ids_.size());
    if (rng.Below(4) == 0) banned_ids_.insert(banned_ids_.end(), {AnyId(rng), 0, AnyId(rng)});
    row.banned_end = static_cast<int32_t>(banned_ids_.size());
    row.bias_begin = static_cast<int32_t>(bias_ids_.size());
    for (int32_t i = 0, id = 0; rng.Below(4) != 0 && i < 6; ++i) {
      id = std::min(vocab_size_ - 1, id + static_cast<int32_t>(rng.Below(4)) * vocab_size_ / 12);
      bias_ids_.push_back(id);  // ascending, some equal
      bias_values_.push_back(10.0f * rng.NextNormal());
    }
    row.bias_end = static_cast<int32_t>(bias_ids_.size());
    if (rng.Below(4) == 0) {
      const size_t words = (vocab + 31) / 32;
      row.bitmask_row = static_cast<int32_t>(bitmasks_.size() / words);
      for (size_t i = 0; i < words; ++i) {
        bitmasks_.push_back(rng.Below(3) == 0 ? 0xFFFFFFFFu : rng.NextU32() & rng.NextU32());
      }
    }
  }
};

}  // namespace hayate::ops::testing
