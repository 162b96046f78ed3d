#include <algorithm>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "ops/sampling/detail/mass.h"
#include "ops/sampling/sampling.h"

namespace hayate::ops {
namespace {

using sampling::Mass;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

struct Token {
  int32_t id;
  float logit;
};

std::vector<Token> Sorted(std::span<const float> logits) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < logits.size(); ++i) tokens.push_back({static_cast<int32_t>(i), logits[i]});
  std::ranges::stable_sort(tokens, [](Token a, Token b) { return a.logit > b.logit; });
  return tokens;
}

bool Usable(std::span<const float> logits) {
  return std::ranges::none_of(logits,
                              [](float x) { return std::isnan(x) || x == -kMinusInfinity; });
}

void Adjust(const SamplingRow& row, std::span<float> logits) {
  const int32_t size = static_cast<int32_t>(logits.size());
  for (int32_t i = 0; row.output_counts != nullptr && i < size; ++i) {
    float& x = logits[static_cast<size_t>(i)];
    const int32_t count = row.output_counts[i];
    if (count == 0) continue;
    x = x > 0.0f ? x / row.repetition_penalty : x * row.repetition_penalty;
    x -= row.frequency_penalty * static_cast<float>(count) + row.presence_penalty;
  }
  for (const auto& [id, value] : row.bias) logits[static_cast<size_t>(id)] += value;
  for (const int32_t id : row.banned) logits[static_cast<size_t>(id)] = kMinusInfinity;
  for (int32_t i = 0; row.bitmask != nullptr && i < size; ++i) {
    if ((row.bitmask[i / 32] >> (i % 32) & 1) == 0) logits[static_cast<size_t>(i)] = kMinusInfinity;
  }
}

int32_t Draw(const SamplingRow& row, std::vector<Token> tokens) {
  const float highest = tokens[0].logit, inv_temperature = 1.0f / row.temperature;
  if (row.top_k > 0 && static_cast<size_t>(row.top_k) < tokens.size()) {
    tokens.resize(static_cast<size_t>(row.top_k));
  }
  const auto mass = [&](Token token) { return Mass((token.logit - highest) * inv_temperature); };
  uint64_t total = 0;
  for (const Token token : tokens) total += mass(token);
  if (row.top_p < 1.0f) {
    const auto target =
        static_cast<uint64_t>(std::ceil(double{row.top_p} * static_cast<double>(total)));
    size_t kept = 0;
    for (uint64_t before = 0; kept < tokens.size() && before < target; ++kept) {
      before += mass(tokens[kept]);
    }
    tokens.resize(kept);
  }
  const auto least = static_cast<uint64_t>(std::ceil(double{row.min_p} * 0x1p40));
  std::erase_if(tokens, [&](Token token) { return mass(token) < least; });

  total = 0;
  for (const Token token : tokens) total += mass(token);
  const auto random = Philox4x32(row.seed, row.position, 0);
  const uint64_t u = uint64_t{random[0]} << 32 | random[1];
  uint64_t left = static_cast<uint64_t>(static_cast<unsigned __int128>(u) * total >> 64);
  std::ranges::sort(tokens, {}, &Token::id);
  for (const Token token : tokens) {
    if (left < mass(token)) return token.id;
    left -= mass(token);
  }
  return tokens[0].id;  // not reached: left < total
}

}  // namespace

SamplingResult SampleReference(int32_t vocab_size, const SamplingRow& row) {
  const std::vector<float> raw(row.logits, row.logits + vocab_size);
  if (!Usable(raw)) return {.bad_logits = true};
  std::vector<float> adjusted = raw;
  Adjust(row, adjusted);
  if (!Usable(adjusted)) return {.bad_logits = true};
  const std::vector<Token> tokens = Sorted(adjusted);
  if (tokens.empty() || tokens[0].logit == kMinusInfinity) return {.bad_logits = true};

  SamplingResult result;
  result.token = row.temperature < kGreedyTemperature ? tokens[0].id : Draw(row, tokens);
  if (row.num_logprobs < 0) return result;
  const std::vector<Token> by_raw = Sorted(raw);
  uint64_t total = 0;
  for (const Token token : by_raw) total += Mass(token.logit - by_raw[0].logit);
  const auto logprob = [&](float logit) {
    return static_cast<float>(double{logit - by_raw[0].logit} -
                              std::log(static_cast<double>(total) * 0x1p-40));
  };
  const auto place = std::ranges::find(by_raw, result.token, &Token::id);
  result.logprob = logprob(place->logit);
  result.rank = static_cast<int32_t>(place - by_raw.begin());
  for (int32_t i = 0; i < std::min(row.num_logprobs, vocab_size); ++i) {
    const Token token = by_raw[static_cast<size_t>(i)];
    result.top.emplace_back(token.id, logprob(token.logit));
  }
  return result;
}

}  // namespace hayate::ops
