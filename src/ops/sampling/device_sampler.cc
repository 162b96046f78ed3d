#include "ops/sampling/device_sampler.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "ops/sampling/sampling.h"
#include "ops/sampling/sm90/device_sampler.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {
namespace {

bool TakesHighestRawLogit(const SamplerRow& row) {
  return row.temperature < kGreedyTemperature && row.num_logprobs < 0 && row.scored_token < 0 &&
         row.counts_row < 0 && row.bitmask_row < 0 && row.bias_begin == row.bias_end &&
         row.banned_begin == row.banned_end;
}

// The row as sampling.h has it. `logits` and `bias` hold what it points to.
SamplingRow PlainRow(const SampleRowsArgs& args, const SamplerRow& row, std::vector<float>& logits,
                     std::vector<std::pair<int32_t, float>>& bias) {
  const int64_t vocab = args.vocab_size;
  const float* source = args.logits + row.logits_row * vocab;
  logits.assign(source, source + vocab);
  bias.clear();
  for (int32_t i = row.bias_begin; i < row.bias_end; ++i) {
    bias.emplace_back(args.bias_ids[i], args.bias_values[i]);
  }
  SamplingRow plain = {.logits = logits.data(),
                       .temperature = row.temperature,
                       .top_k = row.top_k,
                       .top_p = row.top_p,
                       .min_p = row.min_p,
                       .frequency_penalty = row.frequency_penalty,
                       .presence_penalty = row.presence_penalty,
                       .repetition_penalty = row.repetition_penalty,
                       .bias = bias,
                       .seed = row.seed,
                       .position = row.position,
                       .num_logprobs = row.num_logprobs};
  if (row.counts_row >= 0) plain.output_counts = args.state.counts + row.counts_row * vocab;
  if (row.bitmask_row >= 0) {
    plain.bitmask = args.bitmasks + row.bitmask_row * ((vocab + 31) / 32);
  }
  if (row.banned_begin < row.banned_end) {
    plain.banned = {args.banned_ids + row.banned_begin, args.banned_ids + row.banned_end};
  }
  return plain;
}

}  // namespace

SamplerKernel SamplerKernelFor(std::span<const SamplerRow> rows) {
  const bool greedy = std::ranges::all_of(
      rows, [](const SamplerRow& row) { return row.logits_row < 0 || TakesHighestRawLogit(row); });
  return greedy ? SamplerKernel::kGreedy : SamplerKernel::kAny;
}

void SampleRows(Stream stream, const SampleRowsArgs& args) {
  DCHECK_LE(args.vocab_size, kMaxSamplerVocab);
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) {
      return args.kernel == SamplerKernel::kGreedy ? sm90::SampleGreedyRows(stream, args)
                                                   : sm90::SampleAnyRows(stream, args);
    }
  }
  SampleRowsReference(args);
}

void StartCounts(Stream stream, const StartCountsArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::StartCounts(stream, args);
  }
  StartCountsReference(args);
}

void SampleRowsReference(const SampleRowsArgs& args) {
  std::vector<float> logits;
  std::vector<std::pair<int32_t, float>> bias;
  for (int32_t r = 0; r < args.num_rows; ++r) {
    const SamplerRow& row = args.rows[r];
    if (row.logits_row < 0) continue;
    const SamplingRow plain = PlainRow(args, row, logits, bias);
    const SamplingResult result = row.scored_token >= 0
                                      ? ScoreToken(logits, row.scored_token, row.num_logprobs)
                                      : SampleReference(args.vocab_size, plain);
    args.results[r] = {result.token, result.rank, result.logprob, result.bad_logits ? 1 : 0};
    for (size_t i = 0; i < result.top.size(); ++i) {
      const size_t at = static_cast<size_t>(r) * kMaxTopLogprobs + i;
      args.top_ids[at] = result.top[i].first;
      args.top_logprobs[at] = result.top[i].second;
    }
    if (row.scored_token >= 0) continue;
    if (row.slot >= 0) args.state.last_tokens[row.slot] = result.token;
    if (row.counts_row >= 0) {
      ++args.state.counts[row.counts_row * int64_t{args.vocab_size} + result.token];
    }
  }
}

void StartCountsReference(const StartCountsArgs& args) {
  for (int32_t s = 0; s < args.num_starts; ++s) {
    const CountsStart& start = args.starts[s];
    if (start.counts_row < 0) continue;
    int32_t* counts = args.state.counts + start.counts_row * int64_t{args.vocab_size};
    std::fill_n(counts, args.vocab_size, 0);
    for (int32_t i = start.begin; i < start.end; ++i) ++counts[args.outputs[i]];
  }
}

}  // namespace hayate::ops
