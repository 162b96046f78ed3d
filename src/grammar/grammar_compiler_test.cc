#include "grammar/grammar_compiler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <limits>
#include <mutex>
#include <string>

#include "text/testing/small_tokenizers.h"

namespace hayate::grammar {
namespace {

constexpr int32_t kEnd = 256;

std::shared_ptr<const Vocabulary> Bytes() {
  text::TokenizerSpec spec = text::testing::ByteLevelSpec({});
  spec.added_tokens.push_back({.content = "<|end|>", .id = kEnd, .special = true});
  return Vocabulary::Create(*text::testing::Make(std::move(spec)),
                            {.vocab_size = kEnd + 1, .stop_ids = {kEnd}})
      .value();
}

GrammarSource Regex(std::string text) { return {GrammarKind::kRegex, std::move(text), "regex"}; }

TEST(GrammarCompiler, CompilesASourceOnceForAllWhoAsk) {
  const SteadyClock clock;
  GrammarCompiler compiler(Bytes(), {}, clock);
  std::vector<std::future<const CompiledGrammar*>> results;
  for (int i = 0; i < 20; ++i) {
    auto promise = std::make_shared<std::promise<const CompiledGrammar*>>();
    results.push_back(promise->get_future());
    compiler.Compile(Regex("a+b"),
                     [promise](auto result) { promise->set_value(result.value().get()); });
  }
  const CompiledGrammar* first = results[0].get();
  for (size_t i = 1; i < results.size(); ++i) EXPECT_EQ(results[i].get(), first);
  EXPECT_EQ(compiler.CompileNow(Regex("a+b")).value().get(), first);
  EXPECT_EQ(compiler.stats().compiled, 1u);
}

TEST(GrammarCompiler, RemembersRefusals) {
  const SteadyClock clock;
  GrammarCompiler compiler(Bytes(), {}, clock);
  EXPECT_FALSE(compiler.CompileNow(Regex("(")).ok());
  EXPECT_FALSE(compiler.CompileNow(Regex("(")).ok());
  EXPECT_EQ(compiler.stats().failed, 1u);
  EXPECT_EQ(compiler.stats().hits, 1u);
}

TEST(GrammarCompiler, ForgetsTheLeastRecentlyUsedFirst) {
  const SteadyClock clock;
  GrammarCompiler compiler(Bytes(), {.max_cache_entries = 2}, clock);
  ASSERT_TRUE(compiler.CompileNow(Regex("a")).ok());
  ASSERT_TRUE(compiler.CompileNow(Regex("b")).ok());
  ASSERT_TRUE(compiler.CompileNow(Regex("a")).ok());  // a hit: "b" is the oldest
  ASSERT_TRUE(compiler.CompileNow(Regex("c")).ok());
  EXPECT_EQ(compiler.stats().compiled, 3u);
  ASSERT_TRUE(compiler.CompileNow(Regex("a")).ok());
  EXPECT_EQ(compiler.stats().compiled, 3u);
  ASSERT_TRUE(compiler.CompileNow(Regex("b")).ok());
  EXPECT_EQ(compiler.stats().compiled, 4u);
  EXPECT_EQ(compiler.stats().cache_entries, 2u);
}

TEST(GrammarCompiler, RefusesGrammarsBeyondItsMemory) {
  const SteadyClock clock;
  GrammarCompiler compiler(Bytes(), {.max_grammar_bytes = 16}, clock);
  const auto result = compiler.CompileNow(Regex("[a-z]{1,40}"));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().param(), "regex");
}

TEST(GrammarCompiler, AnswersEveryoneWhoWaitsWhenTimeIsUp) {
  const VirtualClock clock;  // stands still: the limit below is over at once
  GrammarCompiler compiler(Bytes(), {.num_threads = 0, .time_limit_ns = 0}, clock);
  const auto result = compiler.CompileNow(Regex("a"));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(result.status().param(), "regex");
  EXPECT_EQ(compiler.stats().timed_out, 1u);
}

TEST(GrammarCompiler, ASourceThatTakesLongKeepsNobodyWaiting) {
  const SteadyClock clock;
  std::string slow = R"({"enum":[)";
  for (int i = 0; i < 4'000; ++i) slow += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\"";
  std::vector<std::string> ended;  // guarded by mutex
  std::mutex mutex;
  std::promise<void> all;
  GrammarCompiler compiler(Bytes(),
                           {.num_threads = 1,
                            .patience_ns = 0,
                            .max_threads = 3,
                            .time_limit_ns = std::numeric_limits<int64_t>::max() / 2},
                           clock);
  const auto compile = [&](GrammarSource source, std::string name) {
    compiler.Compile(source, [&, name](auto result) {
      EXPECT_TRUE(result.ok()) << result.status().message();
      const std::lock_guard lock(mutex);
      ended.push_back(name);
      if (ended.size() == 3) all.set_value();
    });
  };
  compile({GrammarKind::kJsonSchema, slow + "]}", "f"}, "slow");
  compile({GrammarKind::kJsonSchema, slow + R"(,""]})", "f"}, "slow too");
  compile(Regex("a"), "quick");
  all.get_future().wait();
  EXPECT_EQ(ended.front(), "quick");
  // Those that had a substitute have made room for it.
  for (const char* text : {"b", "c", "d", "e"}) {
    EXPECT_TRUE(compiler.CompileNow(Regex(text)).ok());
  }
}

TEST(GrammarCompiler, RefusesWhenTooManyWaitAndAnswersTheRestWhenItStops) {
  const VirtualClock clock;
  std::vector<ErrorCode> codes;
  {
    GrammarCompiler compiler(Bytes(), {.num_threads = 0, .max_waiting = 2}, clock);
    for (const char* text : {"a", "b", "c"}) {
      compiler.Compile(Regex(text), [&](auto result) { codes.push_back(result.status().code()); });
    }
    EXPECT_EQ(codes, std::vector{ErrorCode::kResourceExhausted});
  }
  EXPECT_EQ(codes, (std::vector{ErrorCode::kResourceExhausted, ErrorCode::kUnavailable,
                                ErrorCode::kUnavailable}));
}

}  // namespace
}  // namespace hayate::grammar
