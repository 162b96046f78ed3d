// The cost of one mask over a vocabulary of 128K tokens, along random answers to a JSON schema: its
// mean, and the 99th percentile as counter p99_us. Compilation beside it.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "grammar/compiled_grammar.h"
#include "grammar/matcher.h"
#include "text/testing/small_tokenizers.h"

namespace hayate::grammar {
namespace {

constexpr int32_t kVocab = 128 * 1024;
constexpr int32_t kEnd = kVocab - 1;

constexpr const char* kSchema = R"({"type":"object","properties":{
  "name":{"type":"string","maxLength":60},"age":{"type":"integer","minimum":0,"maximum":150},
  "email":{"type":"string"},"active":{"type":"boolean"},
  "role":{"enum":["admin","editor","viewer"]},
  "tags":{"type":"array","items":{"type":"string"},"maxItems":8},
  "address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"},
    "zip":{"type":"string","pattern":"^[0-9]{5}$"}},"required":["street","city"]}},
  "required":["name","age","email","active","tags","address"],"additionalProperties":false})";

// Bytes, then tokens joined of shorter ones out of letters, digits, blanks and punctuation, as a
// trained vocabulary has them.
std::shared_ptr<const Vocabulary> LargeVocabulary() {
  Rng rng(1);
  std::vector<std::string> pieces;
  for (char c = ' '; c < 127; ++c) pieces.emplace_back(1, c);
  std::set<std::string> seen(pieces.begin(), pieces.end());
  std::vector<std::pair<std::string, std::string>> merges;
  while (static_cast<int32_t>(merges.size()) < kVocab - 257) {
    const std::string& left = pieces[rng.Below(static_cast<uint32_t>(pieces.size()))];
    const std::string& right = pieces[rng.Below(static_cast<uint32_t>(pieces.size()))];
    const std::string joined = left + right;
    if (joined.size() > 14 || !seen.insert(joined).second) continue;
    merges.emplace_back(left, right);
    pieces.push_back(joined);
  }
  text::TokenizerSpec spec = text::testing::ByteLevelSpec(merges);
  spec.added_tokens.push_back({.content = "<|end|>", .id = kEnd, .special = true});
  return Vocabulary::Create(*text::testing::Make(std::move(spec)),
                            {.vocab_size = kVocab, .stop_ids = {kEnd}})
      .value();
}

const std::shared_ptr<const Vocabulary>& Shared() {
  static const std::shared_ptr<const Vocabulary> vocabulary = LargeVocabulary();
  return vocabulary;
}

int32_t RandomAllowed(const std::vector<uint32_t>& mask, Rng& rng) {
  for (;;) {
    const auto token = static_cast<int32_t>(rng.Below(kVocab));
    for (int32_t i = 0; i < kVocab; ++i) {
      const int32_t candidate = (token + i) % kVocab;
      const uint32_t word = mask[static_cast<size_t>(candidate) / 32];
      if (word == 0) {
        i += 31 - candidate % 32;
      } else if ((word >> (candidate % 32) & 1) != 0) {
        return candidate;
      }
    }
  }
}

// Of this thread: other work on the machine does not count.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void FillMask(benchmark::State& state) {
  const auto grammar =
      CompiledGrammar::Compile(Shared(), {GrammarKind::kJsonSchema, kSchema, "schema"}).value();
  std::vector<uint32_t> mask(Shared()->mask_words());
  std::vector<double> times_us;
  Rng rng(2);
  Matcher matcher(grammar);
  for (auto _ : state) {
    const double begin = CpuSeconds();
    const MaskKind kind = matcher.FillMask(mask);
    const double seconds = CpuSeconds() - begin;
    state.SetIterationTime(seconds);
    times_us.push_back(seconds * 1e6);
    if (kind == MaskKind::kOnlyStop) {
      matcher = Matcher(grammar);
    } else {
      matcher.Accept(RandomAllowed(mask, rng));
      if (matcher.ended()) matcher = Matcher(grammar);
    }
  }
  const auto p99 = times_us.begin() + static_cast<long>(times_us.size() * 99 / 100);
  std::nth_element(times_us.begin(), p99, times_us.end());
  state.counters["p99_us"] = *p99;
}
BENCHMARK(FillMask)->UseManualTime()->Iterations(20000);

void CompileSchema(benchmark::State& state) {
  for (auto _ : state) {
    auto grammar =
        CompiledGrammar::Compile(Shared(), {GrammarKind::kJsonSchema, kSchema, "schema"});
    benchmark::DoNotOptimize(grammar);
  }
}
BENCHMARK(CompileSchema)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace hayate::grammar
