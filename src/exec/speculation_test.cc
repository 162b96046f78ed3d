// Rows with drafts on the workers, over tiny checkpoints with every kind of cache: whatever is
// drafted, tokens and log-probabilities are those of plain steps, for every sampler, under memory
// pressure, on one rank, on ranks that split heads, and where rows travel to their experts.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "exec/testing/drafting_server.h"

namespace hayate::exec {
namespace {

using testing::AcceptCase;
using testing::Answers;
using testing::MixedRequests;
using testing::NumAccepted;
using testing::NumDrafts;
using Server = testing::DraftingServer;

struct Layout {
  const char* name;
  testing::Layout ranks = {};
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

const Layout kOne = {"1"}, kTp2 = {"tp2", {.num_ranks = 2}};
const Layout kEp2 = {"ep2", {.num_ranks = 2, .ep_size = 2}};
const Layout kDep2 = {"dep2", {.num_ranks = 2, .dp_size = 2}};
const Layout kDp2Tp2 = {"dp2_tp2", {.num_ranks = 4, .dp_size = 2}};
const Layout kDep4 = {"dep4", {.num_ranks = 4, .dp_size = 4}};

void ExpectEqual(const Answers& got, const Answers& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].tokens, expected[i].tokens) << "request " << i;
    ASSERT_EQ(got[i].logprobs.size(), expected[i].logprobs.size());
    for (size_t t = 0; t < got[i].logprobs.size(); ++t) {
      ASSERT_EQ(got[i].logprobs[t].token, expected[i].logprobs[t].token);
      ASSERT_EQ(got[i].logprobs[t].logprob, expected[i].logprobs[t].logprob);
      ASSERT_EQ(got[i].logprobs[t].top, expected[i].logprobs[t].top);
    }
  }
}

class Speculation : public ::testing::TestWithParam<std::tuple<AcceptCase, Layout>> {
 protected:
  testing::DraftingOptions Options() const {
    const auto& [tested, layout] = GetParam();
    return {.tested = tested, .layout = layout.ranks};
  }
  Answers Plain(const std::vector<Request>& requests) const {
    testing::DraftingOptions options = Options();
    options.max_drafts = 0;
    return Server(options).Run(requests);
  }
};

TEST_P(Speculation, DraftsOfAnyQualityChangeNeitherTokensNorLogprobs) {
  const std::vector<Request> requests = MixedRequests(24);
  const Answers plain = Plain(requests);
  for (const float quality : {0.0f, 0.6f, 1.0f}) {
    Server server(Options());
    const Answers drafted = server.Run(requests, {.plain = &plain, .quality = quality});
    ExpectEqual(drafted, plain);
    EXPECT_GT(server.num_retractions(), 0);
    EXPECT_GT(NumDrafts(drafted), 80);
    EXPECT_TRUE(quality < 1.0f || NumAccepted(drafted) == NumDrafts(drafted));
  }
}

TEST_P(Speculation, TheDrafterOfTheCheckpointChangesNeitherTokensNorLogprobs) {
  const std::vector<Request> requests = MixedRequests(24);
  const Answers plain = Plain(requests);
  testing::DraftingOptions options = Options();
  options.own_drafter = true;
  const Answers drafted = Server(options).Run(requests);
  ExpectEqual(drafted, plain);
  EXPECT_GT(NumDrafts(drafted), 80);
  const Answers alone = Server({.tested = options.tested, .max_drafts = 0}).Run(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(drafted[i].tokens, alone[i].tokens) << "request " << i << " on one rank";
  }
}

// The drafters' guesses too are those of one rank, wherever the target's experts lie; which steps
// ask for some hangs on who waits. Where heads are split, sums round in another order.
TEST_P(Speculation, GuessesAreThoseOfOneRank) {
  const std::vector<Request> requests = MixedRequests(24);
  testing::DraftingOptions options = Options();
  options.own_drafter = true;
  Server server(options);
  server.Run(requests);
  const bool same_bits = options.layout.num_ranks == options.layout.dp_size;
  options.layout = {};
  Server one(options);
  one.Run(requests);
  int compared = 0, different = 0;
  for (const auto& [place, guesses] : server.guesses()) {
    const auto found = one.guesses().find(place);
    if (found == one.guesses().end()) continue;
    ++compared;
    different += guesses != found->second;
  }
  EXPECT_GT(compared, 50);
  EXPECT_LE(different, same_bits ? 0 : compared / 50);
}

// The checkpoint's own drafter follows along behind every refused draft, on every dp rank.
TEST_P(Speculation, EveryAcceptCountBringsTheTokensOfPlainSteps) {
  const std::vector<Request> requests = MixedRequests(24);
  const Answers plain = Plain(requests);
  testing::DraftingOptions options = Options();
  options.own_drafter = true;
  Server server(options);
  for (int32_t num_right = 0; num_right <= options.max_drafts; ++num_right) {
    ExpectEqual(server.Run(requests, {.plain = &plain, .num_right = num_right}), plain);
  }
  for (int dp_rank = 0; dp_rank < options.layout.dp_size; ++dp_rank) {
    EXPECT_GT(server.num_verified(dp_rank), 20) << "dp rank " << dp_rank;
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::tuple<AcceptCase, Layout>>& tested) {
  return std::string(std::get<0>(tested.param).name) + "_" + std::get<1>(tested.param).name;
}
std::vector<AcceptCase> Cases(std::initializer_list<std::string> names) {
  std::vector<AcceptCase> cases = testing::AcceptCases();
  std::erase_if(cases, [&](const AcceptCase& c) { return std::ranges::count(names, c.name) == 0; });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Speculation,
                         ::testing::Combine(::testing::ValuesIn(Cases({"llama", "v4_mtp",
                                                                       "v4_dspark", "v4_pro_dspark",
                                                                       "v41_dspark"})),
                                            ::testing::Values(kOne, kTp2)),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(Exchanges, Speculation,
                         ::testing::Combine(::testing::ValuesIn(Cases({"v3_mtp", "v4_mtp",
                                                                       "v4_dspark", "v4_pro_dspark",
                                                                       "v41_dspark"})),
                                            ::testing::Values(kDep2, kEp2, kDp2Tp2, kDep4)),
                         NameOf);

TEST(SelfSpeculation, AModelThatDraftsForItselfGuessesEveryToken) {
  const std::vector<Request> requests = MixedRequests(24);
  const AcceptCase llama = Cases({"llama"}).front();
  const Answers drafted = Server({.tested = llama, .own_drafter = true}).Run(requests);
  for (size_t i = 0; i < drafted.size(); ++i) {
    // Guesses are drawn with the request's own random numbers; but penalties do not count them.
    if (requests[i].sampling.has_penalties()) continue;
    EXPECT_EQ(drafted[i].num_accepted, drafted[i].num_drafts) << "request " << i;
  }
  EXPECT_GT(NumDrafts(drafted), 100);
}

}  // namespace
}  // namespace hayate::exec
