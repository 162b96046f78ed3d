#include "gateway/admission.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "gateway/api_keys.h"

namespace hayate::gateway {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
using Verdict = Admission::Verdict;
using Ticket = Admission::Ticket;

TEST(Admission, QueuesBeyondItsLimitAndRefusesBeyondItsQueue) {
  Admission admission({.max_concurrent = 1, .max_queued = 1});
  const auto first = admission.Enter(-1, Priority::kNormal, 1, 0);
  const auto second = admission.Enter(-1, Priority::kNormal, 1, 0);
  const auto third = admission.Enter(-1, Priority::kNormal, 1, 0);
  EXPECT_EQ(first.verdict, Verdict::kAdmitted);
  EXPECT_EQ(second.verdict, Verdict::kQueued);
  EXPECT_EQ(third.verdict, Verdict::kRefused);
  EXPECT_EQ(third.reason, Admission::Reason::kQueueFull);
  std::vector<Ticket> started;
  admission.Leave(first.ticket, 0, started);
  EXPECT_EQ(started, std::vector<Ticket>{second.ticket});
}

TEST(Admission, QueuedRequestsExpireAndCanBeCancelled) {
  Admission admission({.max_concurrent = 1, .max_queued = 10, .queue_timeout_ns = kSecond});
  (void)admission.Enter(-1, Priority::kNormal, 1, 0);
  const auto second = admission.Enter(-1, Priority::kNormal, 1, 0);
  const auto third = admission.Enter(-1, Priority::kNormal, 1, kSecond / 2);
  EXPECT_TRUE(admission.Cancel(third.ticket));
  EXPECT_FALSE(admission.Cancel(third.ticket));
  std::vector<Ticket> expired;
  admission.Expire(kSecond - 1, expired);
  EXPECT_TRUE(expired.empty());
  EXPECT_EQ(admission.next_deadline_ns(), kSecond);
  admission.Expire(kSecond, expired);
  EXPECT_EQ(expired, std::vector<Ticket>{second.ticket});
  EXPECT_EQ(admission.num_queued(), 0);
}

TEST(Admission, HigherClassesGoFirstButNobodyStarves) {
  Admission admission(
      {.max_concurrent = 1, .max_queued = 1000, .queue_timeout_ns = 1000 * kSecond});
  auto running = admission.Enter(-1, Priority::kHigh, 1, 0).ticket;
  const auto low = admission.Enter(-1, Priority::kLow, 1, 0).ticket;
  int grants = 0;
  bool low_ran = false;
  while (!low_ran && grants < 20) {
    (void)admission.Enter(-1, Priority::kHigh, 1, 0);
    (void)admission.Enter(-1, Priority::kHigh, 1, 0);
    std::vector<Ticket> started;
    admission.Leave(running, 0, started);
    ASSERT_EQ(started.size(), 1u);
    running = started[0];
    low_ran = running == low;
    ++grants;
  }
  EXPECT_TRUE(low_ran);
  EXPECT_GT(grants, 1);
}

TEST(Admission, KeysHaveRatesTokensAndConcurrencyOfTheirOwn) {
  Admission admission({});
  admission.SetKeyLimits(0, {.requests_per_second = 1.0});
  admission.SetKeyLimits(1, {.tokens_per_second = 100.0});
  admission.SetKeyLimits(2, {.max_concurrent = 1});
  int admitted = 0;
  for (int i = 0; i < 100; ++i) {
    const auto answer = admission.Enter(0, Priority::kNormal, 1, int64_t{i} * kSecond / 10);
    admitted += answer.verdict == Verdict::kAdmitted ? 1 : 0;
  }
  EXPECT_GE(admitted, 10);
  EXPECT_LE(admitted, 12);  // ten seconds at one a second, and a burst of two

  // A large cost is paid back before the next one may start.
  EXPECT_EQ(admission.Enter(1, Priority::kNormal, 1000, 0).verdict, Verdict::kAdmitted);
  const auto refused = admission.Enter(1, Priority::kNormal, 1, kSecond);
  EXPECT_EQ(refused.reason, Admission::Reason::kKeyTokens);
  EXPECT_EQ(refused.retry_after_s, 8);
  EXPECT_EQ(admission.Enter(1, Priority::kNormal, 1, 9 * kSecond).verdict, Verdict::kAdmitted);

  const auto only = admission.Enter(2, Priority::kNormal, 1, 0);
  EXPECT_EQ(admission.Enter(2, Priority::kNormal, 1, 0).reason, Admission::Reason::kKeyConcurrency);
  std::vector<Ticket> started;
  admission.Leave(only.ticket, 0, started);
  EXPECT_EQ(admission.Enter(2, Priority::kNormal, 1, 0).verdict, Verdict::kAdmitted);
}

TEST(Admission, RandomTrafficNeverExceedsALimitAndLosesNobody) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    const int64_t limit = 1 + rng.Below(5);
    Admission admission({.max_concurrent = limit, .max_queued = 8, .queue_timeout_ns = 50});
    std::vector<Ticket> running;
    std::vector<Ticket> queued;
    const auto take = [](std::vector<Ticket>& list, Ticket ticket) {
      return std::erase(list, ticket) == 1;
    };
    for (int64_t now = 0; now < 400; ++now) {
      std::vector<Ticket> started;
      if (rng.Below(2) == 0) {
        const auto answer = admission.Enter(-1, static_cast<Priority>(rng.Below(3)), 1, now);
        if (answer.verdict == Verdict::kAdmitted) running.push_back(answer.ticket);
        if (answer.verdict == Verdict::kQueued) queued.push_back(answer.ticket);
      } else if (!running.empty() && rng.Below(3) > 0) {
        const Ticket done = running[rng.Below(static_cast<uint32_t>(running.size()))];
        take(running, done);
        admission.Leave(done, 1, started);
      } else if (!queued.empty() && rng.Below(4) == 0) {
        EXPECT_TRUE(admission.Cancel(queued.back()));
        queued.pop_back();
      }
      std::vector<Ticket> expired;
      admission.Expire(now, expired);
      for (const Ticket ticket : started) {
        EXPECT_TRUE(take(queued, ticket));
        running.push_back(ticket);
      }
      for (const Ticket ticket : expired) EXPECT_TRUE(take(queued, ticket));
      EXPECT_LE(static_cast<int64_t>(running.size()), limit);
      EXPECT_EQ(admission.num_running(), static_cast<int64_t>(running.size()));
      EXPECT_EQ(admission.num_queued(), static_cast<int64_t>(queued.size()));
    }
  }
}

TEST(ApiKeys, AreReadWithTheirLimits) {
  const auto keys = ParseApiKeys(
      R"({"keys":[{"id":"a","key":"k1","requests_per_second":2.5,"priority":"high","admin":true},)"
      R"({"key":"k2","max_concurrent":3}]})");
  ASSERT_TRUE(keys.ok()) << keys.status().ToString();
  EXPECT_EQ((*keys)[0].limits.requests_per_second, 2.5);
  EXPECT_EQ((*keys)[0].priority, Priority::kHigh);
  EXPECT_EQ((*keys)[1].id, "keys[1]");
  EXPECT_FALSE((*keys)[1].admin);
  EXPECT_EQ(FindApiKey(*keys, "Bearer k2", ""), 1u);
  EXPECT_EQ(FindApiKey(*keys, "bearer k1", ""), 0u);
  EXPECT_EQ(FindApiKey(*keys, "", "k1"), 0u);
  EXPECT_EQ(FindApiKey(*keys, "Bearer k", ""), std::nullopt);
  EXPECT_EQ(FindApiKey(*keys, "", ""), std::nullopt);
}

TEST(ApiKeys, BadFilesNameTheEntry) {
  for (const auto& [json, says] : std::vector<std::pair<const char*, const char*>>{
           {"[]", "keys"},
           {R"({"keys":[{}]})", "keys[0].key"},
           {R"({"keys":[{"key":"k"},{"key":"k","priority":"x"}]})", "keys[1].priority"},
           {R"({"keys":[{"key":"k","max_concurrent":-1}]})", "keys[0].max_concurrent"}}) {
    const auto keys = ParseApiKeys(json);
    ASSERT_FALSE(keys.ok());
    EXPECT_NE(keys.status().message().find(says), std::string::npos) << keys.status().message();
  }
}

}  // namespace
}  // namespace hayate::gateway
