// Answers under a grammar: whatever else runs, is retracted or cancelled, each is a text of its
// grammar, and equal to the same request run alone.

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "engine/testing/world.h"
#include "grammar/matcher.h"
#include "text/testing/small_tokenizers.h"

namespace hayate::engine {
namespace {

using testing::kStopToken;
using testing::kVocab;
using testing::MakeRequest;
using testing::RandomPrompt;
using testing::World;
using testing::WorldOptions;

// Tokens are the bytes below kVocab: "0", "1" and some punctuation can be read.
std::shared_ptr<const grammar::CompiledGrammar> Regex(const std::string& regex) {
  static const auto vocabulary =
      grammar::Vocabulary::Create(*text::testing::Make(text::testing::ByteLevelSpec({})),
                                  {.vocab_size = kVocab, .stop_ids = {kStopToken}})
          .value();
  return grammar::CompiledGrammar::Compile(vocabulary,
                                           {grammar::GrammarKind::kRegex, regex, "regex"})
      .value();
}

std::string Text(const World& world, RequestId id) {
  std::string text;
  for (const TokenId token : world.Tokens(id)) {
    if (token != kStopToken) text += static_cast<char>(token);
  }
  return text;
}

bool Satisfies(const std::shared_ptr<const grammar::CompiledGrammar>& grammar,
               const std::string& text) {
  grammar::Matcher matcher(grammar);
  return matcher.AcceptText(text) && matcher.complete();
}

bool Begins(const std::shared_ptr<const grammar::CompiledGrammar>& grammar,
            const std::string& text) {
  return text.empty() || grammar::Matcher(grammar).AcceptText(text);
}

Request UnderGrammar(Rng& rng, const std::string& regex, int32_t max_new_tokens) {
  Request request = MakeRequest(RandomPrompt(rng, 12), max_new_tokens);
  request.grammar = Regex(regex);
  return request;
}

TEST(EngineGrammar, EndsAtOnceWhereNothingCanFollow) {
  World world({});
  Rng rng(1);
  Request request = UnderGrammar(rng, "[01]{5}-", 100);
  request.sampling.ignore_eos = true;
  const RequestId id = world.Submit(request);
  world.Settle();
  EXPECT_TRUE(Satisfies(request.grammar, Text(world, id)));
  EXPECT_EQ(world.Tokens(id).size(), 6u);
  EXPECT_EQ(world.Last(id).finish, FinishReason::kStop);
  EXPECT_FALSE(world.Last(id).matched_stop);
  world.ExpectAtRest();
}

TEST(EngineGrammar, MayEndWithAStopTokenWhereTheTextIsComplete) {
  World world({});
  Rng rng(2);
  int32_t stopped = 0;
  for (int i = 0; i < 30; ++i) {
    Request request = UnderGrammar(rng, "[01]+(-[01]+)*", 40);
    const RequestId id = world.Submit(request);
    world.Settle();
    const bool by_stop = world.Last(id).finish == FinishReason::kStop;
    EXPECT_TRUE(by_stop ? Satisfies(request.grammar, Text(world, id))
                        : Begins(request.grammar, Text(world, id)));
    EXPECT_EQ(world.Last(id).matched_stop.has_value(), by_stop);
    stopped += by_stop;
  }
  EXPECT_GT(stopped, 0);
}

TEST(EngineGrammar, ReachingTheLengthLimitIsReportedAsSuch) {
  World world({});
  Rng rng(3);
  Request request = UnderGrammar(rng, "[01]{20}", 7);
  const RequestId id = world.Submit(request);
  world.Settle();
  EXPECT_EQ(world.Last(id).finish, FinishReason::kLength);
  EXPECT_EQ(world.Tokens(id).size(), 7u);
  Request exact = UnderGrammar(rng, "[01]{7}", 7);
  const RequestId whole = world.Submit(exact);
  world.Settle();
  EXPECT_EQ(world.Last(whole).finish, FinishReason::kStop);
}

TEST(EngineGrammar, AnswersAreTheSameWhateverRunsBesideThem) {
  Rng rng(4);
  std::vector<Request> requests;
  for (int i = 0; i < 60; ++i) {
    Request request = MakeRequest(RandomPrompt(rng, 1 + static_cast<int32_t>(rng.Below(40))), 30);
    if (i % 3 != 0) request.grammar = Regex(i % 3 == 1 ? "([01]{2}[,-])*" : "[01]{9}(/[01])+");
    requests.push_back(std::move(request));
  }
  std::vector<std::vector<TokenId>> alone;
  for (const Request& request : requests) {
    World world({});
    const RequestId id = world.Submit(request);
    world.Settle();
    alone.push_back(world.Tokens(id));
  }
  // A pool far too small for all: sequences are retracted again and again.
  World world({.total_tokens = 120,
               .max_context = 100,
               .scheduler = {.max_running = 8, .chunked_prefill_size = 16}});
  std::vector<RequestId> ids;
  for (const Request& request : requests) ids.push_back(world.Submit(request));
  world.Settle();
  EXPECT_GT(world.scheduler_->stats().num_retractions, 0u);
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(world.Tokens(ids[i]), alone[i]) << i;
  world.ExpectAtRest();
}

WorldOptions ForcedDrafts() {
  WorldOptions options;
  options.scheduler.max_drafts = 5;
  options.scheduler.max_step_drafts = 20;
  options.draft_source = DraftSource::kGrammar;
  return options;
}

TEST(EngineGrammar, TextThatIsForcedComesManyTokensAStep) {
  World world(ForcedDrafts());
  Rng rng(7);
  // 49 bytes, one of which is the model's choice; each is a token of its own.
  Request request = UnderGrammar(rng, "(01-10/){4}[01](10-01/){4}", 100);
  World plain({});
  const RequestId alone = plain.Submit(request);
  plain.Settle();
  const RequestId id = world.Submit(request);
  world.Settle();
  EXPECT_EQ(world.Tokens(id), plain.Tokens(alone));
  // Among bytes there is one spelling.
  EXPECT_GT(world.Last(id).num_accepted_drafts, 35);
  EXPECT_LE(world.Last(id).num_verifies, 10);
  world.ExpectAtRest();
}

TEST(EngineGrammar, ForcedTextStopsAtTheLengthLimitAndOthersAreLeftAlone) {
  for (int32_t limit = 1; limit < 12; ++limit) {
    World world(ForcedDrafts());
    Rng rng(8);
    const RequestId id = world.Submit(UnderGrammar(rng, "(01-){4}", limit));
    const RequestId free = world.Submit(MakeRequest(RandomPrompt(rng, 9), 30));
    world.Settle();
    EXPECT_EQ(world.Tokens(id).size(), static_cast<size_t>(limit));
    EXPECT_EQ(world.Last(id).finish, FinishReason::kLength);
    EXPECT_EQ(world.Last(free).num_drafts, 0);
    world.ExpectAtRest();
  }
}

TEST(EngineGrammar, DraftsChangeNoAnswer) {
  Rng rng(6);
  std::vector<Request> requests;
  for (int i = 0; i < 40; ++i) {
    Request request = MakeRequest(RandomPrompt(rng, rng.Between(1, 40)), rng.Between(1, 40));
    const char* const regexes[] = {"([01]{2}[,-])*", "[01]{9}(/[01])+", "(01-)+1{5}", "[01]{12}"};
    request.grammar = Regex(regexes[i % 4]);
    request.sampling.ignore_eos = i % 5 == 0;
    requests.push_back(std::move(request));
  }
  std::vector<std::vector<TokenId>> alone;
  for (const Request& request : requests) {
    World world({});
    const RequestId id = world.Submit(request);
    world.Settle();
    alone.push_back(world.Tokens(id));
  }
  for (const DraftSource source :
       {DraftSource::kNgram, DraftSource::kModel, DraftSource::kGrammar}) {
    World world({.total_tokens = 120,
                 .max_context = 100,
                 .scheduler = {.max_running = 8,
                               .chunked_prefill_size = 16,
                               .max_drafts = 5,
                               .max_step_drafts = 20,
                               .draft_lookahead = source == DraftSource::kModel ? 5 : 0},
                 .draft_source = source,
                 .draft_quality = 0.9f});
    std::vector<RequestId> ids;
    for (const Request& request : requests) ids.push_back(world.Submit(request));
    world.Settle();
    for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(world.Tokens(ids[i]), alone[i]) << i;
    // Text of two letters repeats itself; the simulator's drafter knows nothing of grammars.
    if (source == DraftSource::kNgram) {
      EXPECT_GT(world.speculation_metrics_.accepted_tokens.value(), 50u);
    }
    world.ExpectAtRest();
  }
}

TEST(EngineGrammar, CancelsAndFailuresLeaveNoStepWaitingForItsMasks) {
  Rng rng(5);
  World world({.scheduler = {.max_running = 8}});
  std::set<RequestId> live;
  for (int turn = 0; turn < 400; ++turn) {
    if (rng.Below(3) == 0) live.insert(world.Submit(UnderGrammar(rng, "([01]{3}-)*", 50)));
    if (rng.Below(4) == 0 && !live.empty()) {
      world.client_->Cancel(*live.begin());
      live.erase(live.begin());
    }
    world.engine_->Turn();
    world.Collect();
  }
  world.executor_->FailFrom(0);
  world.Submit(UnderGrammar(rng, "[01]{30}", 50));
  world.Settle();
  world.ExpectAtRest();
}

}  // namespace
}  // namespace hayate::engine
