// Every accept count at every border: rows whose drafts stand up to a given one, from none to all,
// begun at every place of a page, a compressor's block, a window and a ring; and requests that end
// right after a refused draft and leave their pages to the next one, which goes on from there. The
// tokens are those of one plain run, greedy and sampled, with the drafter of the checkpoint
// following along.

#include "exec/testing/accept_server.h"

namespace hayate::exec {
namespace {

using testing::AcceptCase;

class AcceptCounts : public ::testing::TestWithParam<std::tuple<AcceptCase, int>> {};

TEST_P(AcceptCounts, AtEveryPlaceBringThePlainTextAlsoToWhoGoesOnFromThere) {
  const auto& [tested, num_ranks] = GetParam();
  for (const bool greedy : {true, false}) {
    if (!greedy && num_ranks > 1) continue;  // what ranks share is not the draw
    testing::ExpectPlainTextAtEveryAcceptCount(tested, {.num_ranks = num_ranks}, greedy);
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, AcceptCounts,
                         ::testing::Combine(::testing::ValuesIn(testing::AcceptCases()),
                                            ::testing::Values(1, 2)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) + "_" +
                                  std::to_string(std::get<1>(test.param));
                         });

TEST(MtpGeneration, BringsTheTextOfTransformersOwnAtEveryAcceptCount) {
  testing::ExpectTransformersMtpText({});
}

}  // namespace
}  // namespace hayate::exec
