// The cost of one mask over a vocabulary of 128K tokens, along random answers to a JSON schema:
// mean, and counters p50_us, p99_us, max_us. Compilation beside it.
//
// The vocabulary is made up, harder than a trained one: one token in ten holds a quote.
// HAYATE_BENCH_TOKENIZER=tokenizer.json takes a trained one in its place.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <set>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/rng.h"
#include "grammar/compiled_grammar.h"
#include "grammar/matcher.h"
#include "text/testing/small_tokenizers.h"
#include "text/tokenizer_json.h"

namespace hayate::grammar {
namespace {

constexpr int32_t kVocab = 128 * 1024;
constexpr int32_t kEnd = kVocab - 1;
constexpr size_t kMaxFileBytes = size_t{64} << 20;

constexpr const char* kSchema = R"({"type":"object","properties":{
  "name":{"type":"string","maxLength":60},"age":{"type":"integer","minimum":0,"maximum":150},
  "email":{"type":"string"},"active":{"type":"boolean"},
  "role":{"enum":["admin","editor","viewer"]},
  "tags":{"type":"array","items":{"type":"string"},"maxItems":8},
  "address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"},
    "zip":{"type":"string","pattern":"^[0-9]{5}$"}},"required":["street","city"]}},
  "required":["name","age","email","active","tags","address"],"additionalProperties":false})";

// Strings with bounds, near and far.
constexpr const char* kForm = R"({"type":"object","properties":{
  "title":{"type":"string","minLength":5,"maxLength":80},
  "summary":{"type":"string","minLength":20,"maxLength":400},
  "body":{"type":"string","maxLength":4096},
  "tags":{"type":"array","items":{"type":"string","minLength":1,"maxLength":20},"maxItems":8}},
  "required":["title","summary","body","tags"],"additionalProperties":false})";

constexpr const char* kLongString = R"({"type":"string","minLength":100,"maxLength":4096})";
constexpr const char* kExpression = "([A-Z][a-z]{1,20} ){1,128}";

// Bytes, then tokens joined of shorter ones out of letters, digits, blanks and punctuation, as a
// trained vocabulary has them.
std::shared_ptr<const text::Tokenizer> MadeUpTokenizer() {
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
  return text::testing::Make(std::move(spec));
}

std::shared_ptr<const text::Tokenizer> TrainedTokenizer(const char* path) {
  const std::string file = ReadFile(path, kMaxFileBytes).value();
  return text::testing::Make(
      text::ParseTokenizerJson({.tokenizer_json = file, .tokenizer_config_json = ""}).value());
}

std::shared_ptr<const Vocabulary> MakeVocabulary() {
  const char* path = std::getenv("HAYATE_BENCH_TOKENIZER");
  const auto tokenizer = path == nullptr ? MadeUpTokenizer() : TrainedTokenizer(path);
  const int32_t end = path == nullptr ? kEnd : tokenizer->vocab_size() - 1;
  return Vocabulary::Create(*tokenizer, {.vocab_size = tokenizer->vocab_size(), .stop_ids = {end}})
      .value();
}

const std::shared_ptr<const Vocabulary>& Shared() {
  static const std::shared_ptr<const Vocabulary> vocabulary = MakeVocabulary();
  return vocabulary;
}

int32_t RandomAllowed(const std::vector<uint32_t>& mask, Rng& rng) {
  const int32_t size = Shared()->size();
  for (;;) {
    const auto token = static_cast<int32_t>(rng.Below(static_cast<uint32_t>(size)));
    for (int32_t i = 0; i < size; ++i) {
      const int32_t candidate = (token + i) % size;
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

// Of a matcher by itself, and with the cache that an engine has.
enum class From { kMatcher, kCache };

void FillMask(benchmark::State& state, GrammarKind kind, const char* source, From from) {
  const auto grammar = CompiledGrammar::Compile(Shared(), {kind, source, "source"}).value();
  std::vector<uint32_t> mask(Shared()->mask_words());
  std::vector<double> times_us;
  Rng rng(2);
  Matcher matcher(grammar);
  MaskCache cache(size_t{64} << 20);
  for (auto _ : state) {
    const double begin = CpuSeconds();
    const MaskKind result =
        from == From::kCache ? matcher.FillMask(mask, cache) : matcher.FillMask(mask);
    const double seconds = CpuSeconds() - begin;
    state.SetIterationTime(seconds);
    times_us.push_back(seconds * 1e6);
    if (result == MaskKind::kOnlyStop) {
      matcher = Matcher(grammar);
    } else {
      matcher.Accept(RandomAllowed(mask, rng));
      if (matcher.ended()) matcher = Matcher(grammar);
    }
  }
  std::sort(times_us.begin(), times_us.end());
  state.counters["p50_us"] = times_us[times_us.size() / 2];
  state.counters["p99_us"] = times_us[times_us.size() * 99 / 100];
  state.counters["max_us"] = times_us.back();
  state.counters["hits"] = static_cast<double>(cache.stats().hits);
}
#define FILL(name, kind, source, from, iterations)                         \
  BENCHMARK_CAPTURE(FillMask, name, GrammarKind::kind, source, From::from) \
      ->UseManualTime()                                                    \
      ->Iterations(iterations)
FILL(person, kJsonSchema, kSchema, kMatcher, 20000);
FILL(person_cached, kJsonSchema, kSchema, kCache, 20000);
FILL(form, kJsonSchema, kForm, kMatcher, 20000);
FILL(form_cached, kJsonSchema, kForm, kCache, 20000);
FILL(lengths_100_4096, kJsonSchema, kLongString, kMatcher, 20000);
FILL(lengths_100_4096_cached, kJsonSchema, kLongString, kCache, 20000);
FILL(regex, kRegex, kExpression, kMatcher, 2000);
FILL(regex_cached, kRegex, kExpression, kCache, 2000);

// What has been slow somewhere: repetitions of any length.
void CompileSource(benchmark::State& state, GrammarKind kind, const char* source) {
  for (auto _ : state) {
    const auto grammar = CompiledGrammar::Compile(Shared(), {kind, source, "source"});
    state.counters["MiB"] = static_cast<double>(grammar.value()->memory_bytes()) / (1 << 20);
  }
}
#define COMPILE(name, kind, source) \
  BENCHMARK_CAPTURE(CompileSource, name, GrammarKind::kind, source)->Unit(benchmark::kMillisecond)
COMPILE(person, kJsonSchema, kSchema);
COMPILE(max_length_128, kJsonSchema, R"({"type":"string","maxLength":128})");
COMPILE(form, kJsonSchema, kForm);
COMPILE(lengths_100_4096, kJsonSchema, kLongString);
COMPILE(min_length_5000, kJsonSchema, R"({"type":"string","minLength":5000})");
COMPILE(max_items_5000, kJsonSchema,
        R"({"type":"array","items":{"type":"integer"},"maxItems":5000})");
COMPILE(regex, kRegex, kExpression);

}  // namespace
}  // namespace hayate::grammar
