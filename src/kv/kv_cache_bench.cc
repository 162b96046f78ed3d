// Host cost of the cache. Targets: a match of 128K tokens ≤ 1 ms (≤ 2 ms over all groups of
// DeepSeek V4 and V4.1), publication of a chunk of 4,096 tokens ≤ 0.5 ms, eviction of 10,000 pages
// ≤ 5 ms, and a decode step of 256 sequences that does not grow with the number of cached pages.

#include <benchmark/benchmark.h>

#include <memory>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "kv/kv_cache.h"

namespace hayate::kv {
namespace {

constexpr int32_t kPageTokens = 16;  // of kFullOnly and kHybrid
using Tokens = std::vector<TokenId>;

enum Groups : int64_t { kFullOnly, kHybrid, kV4, kV41, kV41Replayed };

CacheGroup Window(const char* name, int32_t window) {
  return {.name = name, .kind = CacheKind::kWindow, .window = window};
}
CacheGroup Entries(const char* name, int32_t ratio) {
  return {.name = name, .kind = CacheKind::kCompressed, .ratio = ratio};
}

// The groups of models/detail/deepseek_v4_cache.cc and deepseek_v41_cache.cc.
CacheLayout V4Layout() {
  return {.page_tokens = 128,
          .groups = {Window("window", 128),
                     Entries("compressed_4", 4),
                     Entries("compressed_128", 128),
                     Window("overlap", 8),
                     {.name = "pending", .kind = CacheKind::kState}}};
}
CacheLayout V41Layout(bool replayed) {
  CacheLayout layout = {.page_tokens = 32,
                        .groups = {Window("window", 128),
                                   {.name = "entries_1"},
                                   Entries("entries_2", 2),
                                   {.name = "pending", .kind = CacheKind::kState},
                                   Window("engram_tokens", 4)}};
  if (!replayed) return layout;
  layout.replay_tokens = 128;
  layout.groups[0].replayed = true;
  layout.groups[4] = {.name = "engram_tokens"};
  return layout;
}

std::unique_ptr<KvCache> Create(CacheLayout layout, int32_t num_pages) {
  const std::vector<int32_t> counts(layout.groups.size(), num_pages);
  return KvCache::Create({.layout = std::move(layout), .num_pages = counts}).value();
}

std::unique_ptr<KvCache> MakeCache(int64_t groups, int32_t num_pages) {
  if (groups == kV4) return Create(V4Layout(), num_pages);
  if (groups == kV41 || groups == kV41Replayed) {
    return Create(V41Layout(groups == kV41Replayed), num_pages);
  }
  CacheLayout layout{.page_tokens = kPageTokens, .groups = {{.name = "kv"}}};
  if (groups == kHybrid) {
    layout.groups.push_back({.name = "c128", .kind = CacheKind::kCompressed, .ratio = 16});
    layout.groups.push_back({.name = "window", .kind = CacheKind::kWindow, .window = 128});
    layout.groups.push_back({.name = "overlap", .kind = CacheKind::kWindow, .window = 8});
  }
  return Create(std::move(layout), num_pages);
}

Tokens RandomTokens(Rng& rng, int32_t count) {
  Tokens tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(rng.Below(100'000)));
  return tokens;
}

// Puts a finished sequence into the tree.
void Insert(KvCache& cache, const Tokens& tokens) {
  StepPlan plan;
  const auto length = static_cast<int32_t>(tokens.size());
  const auto sequence = cache.Begin({0}, cache.Match("", tokens, length), length);
  CHECK(sequence->Reserve(sequence->first_position(), length, plan));
  sequence->Publish(tokens, length);
}

// Inserts a long prompt in turns with others, so that its nodes lie apart in memory as after hours
// of service.
void InsertScattered(KvCache& cache, const Tokens& tokens, Rng& rng, int32_t num_others) {
  const int32_t chunk = 4 * cache.page_tokens();
  for (size_t end = chunk; end <= tokens.size(); end += chunk) {
    Insert(cache, Tokens(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(end)));
    for (int32_t i = 0; i < num_others; ++i) Insert(cache, RandomTokens(rng, chunk));
  }
}

// Pins, and unpins: what admission pays.
void BM_Match128K(benchmark::State& state) {
  Rng rng(1);
  const auto cache = MakeCache(state.range(0), 120'000);
  const Tokens tokens = RandomTokens(rng, 128 * 1024 + 1);
  InsertScattered(*cache, tokens, rng, 10);
  for (auto _ : state) {
    const PrefixHandle handle = cache->Match("", tokens, 1 << 30);
    CHECK_EQ(handle.num_tokens(), 128 * 1024);
  }
}
BENCHMARK(BM_Match128K)->DenseRange(kFullOnly, kV41Replayed)->Unit(benchmark::kMicrosecond);

void BM_MatchLength128K(benchmark::State& state) {
  Rng rng(1);
  const auto cache = MakeCache(state.range(0), 120'000);
  const Tokens tokens = RandomTokens(rng, 128 * 1024 + 1);
  InsertScattered(*cache, tokens, rng, 10);
  for (auto _ : state) CHECK_EQ(cache->MatchLength("", tokens, 1 << 30), 128 * 1024);
}
BENCHMARK(BM_MatchLength128K)->DenseRange(kFullOnly, kV41Replayed)->Unit(benchmark::kMicrosecond);

// Published by chunks of 4,096 tokens, the last of them measured.
void BM_Publish4K(benchmark::State& state) {
  Rng rng(1);
  const auto cache = MakeCache(state.range(0), 100'000);
  const Tokens tokens = RandomTokens(rng, 4096);
  for (auto _ : state) {
    state.PauseTiming();
    cache->Flush();
    StepPlan plan;
    auto sequence = cache->Begin({0}, cache->Match("", {}, 0), 4096);
    CHECK(sequence->Reserve(0, 4096, plan));
    state.ResumeTiming();
    sequence->Publish(tokens, 4096);
    state.PauseTiming();
    sequence.reset();
    state.ResumeTiming();
  }
}
BENCHMARK(BM_Publish4K)->DenseRange(kFullOnly, kV41Replayed)->Unit(benchmark::kMicrosecond);

void BM_Evict10000Pages(benchmark::State& state) {
  Rng rng(1);
  const auto cache = MakeCache(state.range(0), 120'000);
  for (auto _ : state) {
    state.PauseTiming();
    while (cache->counts(0).free >= 4) Insert(*cache, RandomTokens(rng, 4 * kPageTokens));
    StepPlan plan;
    auto sequence = cache->Begin({0}, cache->Match("", {}, 0), 0);
    const int32_t num_free = cache->counts(0).free;
    state.ResumeTiming();
    // Reserve takes the pages by evicting as many others.
    CHECK(sequence->Reserve(0, (10'000 + num_free) * kPageTokens, plan));
    state.PauseTiming();
    sequence.reset();
    state.ResumeTiming();
  }
}
BENCHMARK(BM_Evict10000Pages)
    ->Arg(kFullOnly)
    ->Arg(kHybrid)
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(50);

// One decode step of 256 sequences of about 1,000 tokens: Reserve, submit, retire, Publish. The
// pool is full, so every new page evicts one. Arguments: groups, cached pages.
void BM_DecodeStep256(benchmark::State& state) {
  constexpr int32_t kSequences = 256;
  constexpr int32_t kLength = 1000;
  Rng rng(1);
  const auto num_cached = static_cast<int32_t>(state.range(1));
  const auto cache =
      MakeCache(state.range(0), num_cached + kSequences * (2 * kLength / kPageTokens));
  struct Row {
    std::unique_ptr<SequenceCache> cache;
    Tokens tokens;
    int32_t length = 0;
  };
  std::vector<Row> rows(kSequences);
  StepPlan plan;
  uint64_t step = 0;
  uint64_t retired = 0;
  const auto restart = [&](Row& row) {
    row.cache.reset();
    row.length = kLength + rng.Between(0, kPageTokens);
    row.tokens = RandomTokens(rng, 2 * kLength);
    row.cache = cache->Begin({0}, cache->Match("", {}, 0), kLength);
    CHECK(row.cache->Reserve(0, row.length, plan));
    row.cache->Publish(row.tokens, row.length);
  };
  for (Row& row : rows) restart(row);
  while (cache->counts(0).free >= 4) Insert(*cache, RandomTokens(rng, 4 * kPageTokens));
  int32_t steps_left = kLength - kPageTokens;
  for (auto _ : state) {
    plan.Clear();
    for (Row& row : rows) {
      CHECK(row.cache->Reserve(row.length, row.length + 1, plan));
      ++row.length;
    }
    cache->StepSubmitted(++step);
    while (retired + 1 < step) cache->StepRetired(++retired);
    for (Row& row : rows) row.cache->Publish(row.tokens, row.length - 1);
    if (--steps_left > 0) continue;
    state.PauseTiming();
    cache->StepRetired(++retired);
    for (Row& row : rows) restart(row);
    steps_left = kLength - kPageTokens;
    state.ResumeTiming();
  }
}
BENCHMARK(BM_DecodeStep256)
    ->ArgsProduct({{kFullOnly, kHybrid}, {1'000, 10'000, 100'000}})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace hayate::kv
