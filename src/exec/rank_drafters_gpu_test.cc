// Drafters over ranks on GPUs, or on one that they share: each attention group has the whole
// drafter and runs it for its own rows. The tokens are those of one rank without drafts, for every
// accept count and with the drafters' own guesses, under memory pressure and beside prompts.

#include <gtest/gtest.h>

#include <string>

#include "exec/testing/drafting_server.h"

namespace hayate::exec {
namespace {

using testing::AcceptCase;
using testing::Answers;
using testing::Layout;
using Server = testing::DraftingServer;

// Before anything else of CUDA.
[[maybe_unused]] const bool kPrepared = (PrepareToShareGpus(), true);

class RankDraftersGpu : public ::testing::TestWithParam<AcceptCase> {
 protected:
  testing::DraftingOptions Over(Layout layout) {
    layout.device = DeviceKind::kCuda;
    return {.tested = GetParam(), .layout = layout, .own_drafter = true};
  }
  Answers Plain(const std::vector<Request>& requests) {
    testing::DraftingOptions one = Over({});
    one.max_drafts = 0;
    one.own_drafter = false;
    return Server(one).Run(requests);
  }
  static void ExpectTokens(const Answers& got, const Answers& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].tokens, expected[i].tokens) << "request " << i;
    }
  }
};

TEST_P(RankDraftersGpu, EveryAcceptCountBringsTheTokensOfOneRank) {
  const std::vector<Request> requests = testing::MixedRequests(24);
  const Answers plain = Plain(requests);
  for (const int dp_size : {1, 2}) {
    const testing::DraftingOptions options = Over({.num_ranks = 2, .dp_size = dp_size});
    Server server(options);
    for (int32_t num_right = 0; num_right <= options.max_drafts; ++num_right) {
      SCOPED_TRACE(std::to_string(dp_size) + " dp ranks, " + std::to_string(num_right) + " stand");
      ExpectTokens(server.Run(requests, {.plain = &plain, .num_right = num_right}), plain);
    }
    EXPECT_GT(server.num_retractions(), 0);
    for (int dp_rank = 0; dp_rank < dp_size; ++dp_rank) {
      EXPECT_GT(server.num_verified(dp_rank), 20) << "dp rank " << dp_rank;
    }
  }
}

TEST_P(RankDraftersGpu, OwnGuessesOfTwoAndFourRanksBringTheTokensOfOneRank) {
  const std::vector<Request> requests = testing::MixedRequests(24);
  const Answers plain = Plain(requests);
  const Layout layouts[] = {{.num_ranks = 2, .dp_size = 2},
                            {.num_ranks = 4, .dp_size = 2},
                            {.num_ranks = 4, .dp_size = 4}};
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(std::to_string(layout.num_ranks) + " ranks, " + std::to_string(layout.dp_size) +
                 " dp ranks");
    const Answers drafted = Server(Over(layout)).Run(requests);
    ExpectTokens(drafted, plain);
    EXPECT_GT(testing::NumDrafts(drafted), 40);
    for (size_t i = 0; i < drafted.size(); ++i) {
      // A model that drafts for itself guesses every token, with the request's own random numbers.
      if (GetParam().draft != models::DraftKind::kStandalone) continue;
      EXPECT_EQ(drafted[i].num_accepted, drafted[i].num_drafts) << "request " << i;
    }
  }
}

std::vector<AcceptCase> CasesWithDrafters() {
  std::vector<AcceptCase> cases = testing::AcceptCases();
  std::erase_if(cases, [](const AcceptCase& c) { return c.draft == models::DraftKind::kNone; });
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Checkpoints, RankDraftersGpu, ::testing::ValuesIn(CasesWithDrafters()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace hayate::exec
