#include "sched/waiting_queue.h"

#include <gtest/gtest.h>

#include "sched/output_reserve.h"

namespace hayate::sched {
namespace {

// Sequences 0 … 4 with priorities 0, 5, 5, −1, 9, inserted in a mixed order.
class WaitingQueueOrder : public ::testing::Test {
 protected:
  WaitingQueueOrder() {
    constexpr int32_t kPriorities[] = {0, 5, 5, -1, 9};
    for (size_t i = 0; i < 5; ++i) {
      sequences_[i].arrival = i;
      sequences_[i].request.priority = kPriorities[i];
    }
  }
  std::vector<uint64_t> Head(Policy policy, size_t limit) {
    WaitingQueue queue(policy);
    for (const size_t i : {3, 0, 4, 2, 1}) queue.Insert(&sequences_[i]);
    std::vector<Sequence*> head;
    queue.Head(limit, head);
    std::vector<uint64_t> arrivals;
    for (const Sequence* sequence : head) arrivals.push_back(sequence->arrival);
    return arrivals;
  }

  Sequence sequences_[5];
};

TEST_F(WaitingQueueOrder, IsByArrivalUnlessThePolicyIsPriority) {
  const std::vector<uint64_t> by_arrival = {0, 1, 2, 3, 4};
  EXPECT_EQ(Head(Policy::kFcfs, 5), by_arrival);
  EXPECT_EQ(Head(Policy::kLpm, 9), by_arrival);
  EXPECT_EQ(Head(Policy::kPriority, 5), (std::vector<uint64_t>{4, 1, 2, 0, 3}));
}

TEST_F(WaitingQueueOrder, HeadStopsAtItsLimit) {
  EXPECT_EQ(Head(Policy::kPriority, 2), (std::vector<uint64_t>{4, 1}));
  EXPECT_TRUE(Head(Policy::kFcfs, 0).empty());
}

TEST_F(WaitingQueueOrder, AReturningSequenceTakesItsOldPlace) {
  WaitingQueue queue(Policy::kFcfs);
  for (Sequence& sequence : sequences_) queue.Insert(&sequence);
  queue.Erase(&sequences_[1]);
  EXPECT_EQ(queue.size(), 4u);
  queue.Insert(&sequences_[1]);
  std::vector<Sequence*> head;
  queue.Head(2, head);
  EXPECT_EQ(head[1], &sequences_[1]);
}

TEST(ParsePolicy, KnowsThreeNamesAndListsThemForAnyOther) {
  EXPECT_EQ(ParsePolicy("fcfs").value(), Policy::kFcfs);
  EXPECT_EQ(ParsePolicy("lpm").value(), Policy::kLpm);
  EXPECT_EQ(ParsePolicy("priority").value(), Policy::kPriority);
  for (const char* name : {"", "FCFS", "lof"}) {
    const auto policy = ParsePolicy(name);
    ASSERT_FALSE(policy.ok()) << name;
    EXPECT_EQ(policy.status().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(policy.status().message().find("fcfs, lpm or priority"), std::string::npos);
  }
}

TEST(OutputReserve, FallsStepByStepToItsFloorAndJumpsAfterARetraction) {
  OutputReserve reserve;
  const int32_t at_start = reserve.TokensFor(1000);
  EXPECT_EQ(reserve.TokensFor(0), 0);
  EXPECT_EQ(reserve.TokensFor(1 << 30), reserve.TokensFor(4096));
  for (int step = 0; step < 10'000; ++step) {
    const float before = reserve.ratio();
    reserve.OnStep();
    ASSERT_LE(reserve.ratio(), before);
  }
  EXPECT_GT(reserve.TokensFor(1000), 0);
  EXPECT_LT(reserve.TokensFor(1000), at_start);
  reserve.OnRetraction();
  EXPECT_EQ(reserve.TokensFor(1000), 1000);
}

}  // namespace
}  // namespace hayate::sched
