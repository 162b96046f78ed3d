// Encode speed of one tokenizer on one text; tools/bench_tokenizer.py sets the reference library beside it.
//
//   tokenizer_speed TOKENIZER_JSON TEXT_FILE [Google Benchmark flags]

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "base/mapped_file.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"

namespace hayate::text {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 28;

struct Fixture {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string json;
  std::string text;
};

Result<Fixture> Load(const char* json_path, const char* text_path) {
  Fixture fixture;
  ASSIGN_OR_RETURN(fixture.json, ReadFile(json_path, kMaxFileBytes));
  ASSIGN_OR_RETURN(fixture.text, ReadFile(text_path, Tokenizer::kMaxTextBytes));
  ASSIGN_OR_RETURN(TokenizerSpec spec, ParseTokenizerJson({fixture.json, ""}));
  ASSIGN_OR_RETURN(fixture.tokenizer, Tokenizer::Create(std::move(spec)));
  return fixture;
}

void Encode(benchmark::State& state, const Fixture& fixture, std::string_view text) {
  for (auto _ : state) benchmark::DoNotOptimize(fixture.tokenizer->Encode(text));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

void Detokenize(benchmark::State& state, const Fixture& fixture) {
  const auto ids = *fixture.tokenizer->Encode(fixture.text);
  for (auto _ : state) {
    Detokenizer detokenizer(fixture.tokenizer);
    for (const int32_t id : ids) benchmark::DoNotOptimize(detokenizer.Push(id));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(ids.size()));
}

void Create(benchmark::State& state, const Fixture& fixture) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(Tokenizer::Create(*ParseTokenizerJson({fixture.json, ""})));
  }
}

void Register(const Fixture& fixture) {
  const auto add = [](const char* name, auto run) {
    benchmark::RegisterBenchmark(name, run)->Unit(benchmark::kMillisecond);
  };
  add("Encode/file", [&](benchmark::State& state) { Encode(state, fixture, fixture.text); });
  add("Encode/short", [&](benchmark::State& state) {
    Encode(state, fixture, std::string_view(fixture.text).substr(0, 200));
  });
  // The worst for merging: 1 MB in one piece.
  add("Encode/no_space", [&](benchmark::State& state) {
    std::string text;
    while (text.size() < (size_t{1} << 20)) text += "thequickbrownfoxjumpsoverthelazydog";
    Encode(state, fixture, text);
  });
  add("Detokenize/stream", [&](benchmark::State& state) { Detokenize(state, fixture); });
  add("Create", [&](benchmark::State& state) { Create(state, fixture); });
}

}  // namespace
}  // namespace hayate::text

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 3) {
    fmt::print(stderr, "usage: tokenizer_speed TOKENIZER_JSON TEXT_FILE\n");
    return 2;
  }
  const auto fixture = hayate::text::Load(argv[1], argv[2]);
  if (!fixture.ok()) {
    fmt::print(stderr, "{}\n", fixture.status().ToString());
    return 1;
  }
  hayate::text::Register(*fixture);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
