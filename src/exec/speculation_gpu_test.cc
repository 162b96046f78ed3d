// Drafts on one GPU, of one rank and of two, in exact mode over tiny checkpoints with every kind of
// cache and of drafter: every accept count at every place brings the text of plain steps, and so do
// the drafter's own guesses, greedy and sampled.

#include "exec/testing/accept_server.h"

namespace hayate::exec {
namespace {

using testing::AcceptCase;
using testing::AcceptServer;

constexpr AcceptServer::Options kGpu = {.device = DeviceKind::kCuda};

class SpeculationGpu : public ::testing::TestWithParam<AcceptCase> {};

TEST_P(SpeculationGpu, EveryAcceptCountBringsThePlainTextAlsoToWhoGoesOnFromThere) {
  testing::ExpectPlainTextAtEveryAcceptCount(GetParam(), kGpu, true);
}

class DraftersGpu : public SpeculationGpu {};

TEST_P(DraftersGpu, OwnGuessesBringThePlainTextGreedyAndSampled) {
  for (const bool greedy : {true, false}) {
    const testing::OwnGuesses counts =
        testing::ExpectPlainTextWithOwnGuesses(GetParam(), kGpu, AcceptServer::Sampling(greedy));
    EXPECT_GT(counts.num_drafts, 0);
    // A model that drafts for itself guesses every token, with the request's own random numbers.
    if (GetParam().draft == models::DraftKind::kStandalone) {
      EXPECT_EQ(counts.num_accepted, counts.num_drafts);
    }
  }
}

TEST_P(DraftersGpu, OwnGuessesOfTwoRanksBringThePlainText) {
  const testing::OwnGuesses counts = testing::ExpectPlainTextWithOwnGuesses(
      GetParam(), {.device = DeviceKind::kCuda, .num_ranks = 2}, AcceptServer::Sampling(true));
  EXPECT_GT(counts.num_drafts, 0);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, SpeculationGpu, ::testing::ValuesIn(testing::AcceptCases()),
                         [](const auto& test) { return std::string(test.param.name); });

std::vector<AcceptCase> CasesWithDrafters() {
  std::vector<AcceptCase> cases = testing::AcceptCases();
  std::erase_if(cases, [](const AcceptCase& c) { return c.draft == models::DraftKind::kNone; });
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Checkpoints, DraftersGpu, ::testing::ValuesIn(CasesWithDrafters()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(MtpGenerationGpu, BringsTheTextOfTransformersOwnAtEveryAcceptCount) {
  testing::ExpectTransformersMtpText(kGpu);
}

}  // namespace
}  // namespace hayate::exec
