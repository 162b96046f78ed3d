// Breaker, health, outliers and the retry rule: what is decided when something fails.

#include <gtest/gtest.h>

#include "gateway/circuit_breaker.h"
#include "gateway/health.h"
#include "gateway/outlier.h"
#include "gateway/retry.h"

namespace hayate::gateway {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kMs = 1'000'000;
using Pass = CircuitBreaker::Pass;

TEST(CircuitBreaker, OpensAfterFailuresInARowAndLetsOneTrialThroughAtATime) {
  CircuitBreaker breaker({.failure_threshold = 3, .success_threshold = 2, .open_ns = 10 * kSecond});
  for (int i = 0; i < 2; ++i) breaker.Fail(Pass::kFree, 0);
  breaker.Succeed(Pass::kFree);  // the row is broken
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(breaker.Allows(kSecond));
    breaker.Fail(breaker.Admit(kSecond), kSecond);
  }
  EXPECT_FALSE(breaker.Allows(kSecond));
  EXPECT_FALSE(breaker.Allows(10 * kSecond));
  EXPECT_TRUE(breaker.Allows(11 * kSecond));
  const Pass first = breaker.Admit(11 * kSecond);
  EXPECT_EQ(first, Pass::kTrial);
  EXPECT_FALSE(breaker.Allows(11 * kSecond));
  breaker.Succeed(Pass::kFree);  // of before it opened
  EXPECT_FALSE(breaker.Allows(11 * kSecond));
  breaker.Succeed(first);
  EXPECT_EQ(breaker.state(), CircuitBreaker::State::kHalfOpen);
  EXPECT_TRUE(breaker.Allows(11 * kSecond));
  breaker.Succeed(breaker.Admit(11 * kSecond));
  EXPECT_EQ(breaker.state(), CircuitBreaker::State::kClosed);
  EXPECT_EQ(breaker.Admit(11 * kSecond), Pass::kFree);
}

TEST(CircuitBreaker, AFailedTrialOpensItAgainAndAnAbandonedOneDoesNot) {
  CircuitBreaker breaker({.failure_threshold = 1, .open_ns = kSecond});
  breaker.Fail(Pass::kFree, 0);
  EXPECT_TRUE(breaker.Allows(kSecond));
  breaker.Abandon(breaker.Admit(kSecond));
  EXPECT_TRUE(breaker.Allows(kSecond));
  const Pass trial = breaker.Admit(kSecond);
  breaker.Fail(Pass::kFree, kSecond);  // of before it opened
  EXPECT_EQ(breaker.state(), CircuitBreaker::State::kHalfOpen);
  breaker.Fail(trial, kSecond);
  EXPECT_FALSE(breaker.Allows(kSecond + 1));
  EXPECT_EQ(breaker.times_opened(), 2u);
}

TEST(CircuitBreaker, ALongTrialHoldsNobodyUp) {
  CircuitBreaker breaker({.failure_threshold = 1, .open_ns = kSecond});
  breaker.Fail(Pass::kFree, 0);
  EXPECT_TRUE(breaker.Allows(kSecond));
  breaker.Admit(kSecond);
  EXPECT_FALSE(breaker.Allows(kSecond + CircuitBreaker::kTrialPatienceNs - 1));
  EXPECT_TRUE(breaker.Allows(kSecond + CircuitBreaker::kTrialPatienceNs));
  breaker.Admit(kSecond + CircuitBreaker::kTrialPatienceNs);
  EXPECT_FALSE(breaker.Allows(kSecond + CircuitBreaker::kTrialPatienceNs));
}

TEST(CircuitBreaker, BelievesAGoodProbeAtFirstAndEverLaterWhenTrialsFailNonetheless) {
  CircuitBreaker breaker({.failure_threshold = 1, .success_threshold = 1, .open_ns = 3 * kSecond});
  int64_t now_ns = 0;
  breaker.Fail(Pass::kFree, now_ns);
  for (const int64_t doubt_ms : {0, 500, 1000, 2000, 3000, 3000}) {
    EXPECT_FALSE(breaker.Allows(now_ns)) << doubt_ms;
    breaker.OnAlive(now_ns);
    now_ns += doubt_ms * kMs;
    if (doubt_ms > 0) {
      EXPECT_FALSE(breaker.Allows(now_ns - 1)) << doubt_ms;
    }
    EXPECT_TRUE(breaker.Allows(now_ns)) << doubt_ms;
    breaker.Fail(breaker.Admit(now_ns), now_ns);
  }
  breaker.OnReturn();
  breaker.Succeed(breaker.Admit(now_ns));
  EXPECT_EQ(breaker.state(), CircuitBreaker::State::kClosed);
  breaker.Fail(Pass::kFree, now_ns);
  breaker.OnAlive(now_ns);  // the doubt is forgotten
  EXPECT_TRUE(breaker.Allows(now_ns));
}

TEST(CircuitBreaker, ForgetsFailuresOutsideItsWindow) {
  CircuitBreaker breaker({.failure_threshold = 2, .window_ns = 5 * kSecond});
  breaker.Fail(Pass::kFree, 0);
  breaker.Fail(Pass::kFree, 6 * kSecond);
  EXPECT_EQ(breaker.state(), CircuitBreaker::State::kClosed);
  breaker.Fail(Pass::kFree, 7 * kSecond);
  EXPECT_EQ(breaker.state(), CircuitBreaker::State::kOpen);
}

TEST(Health, FallsAfterBadProbesAndRisesAfterGoodOnes) {
  Health health({.failure_threshold = 2, .success_threshold = 2, .slow_start_ns = 10 * kSecond});
  EXPECT_EQ(health.state(), Health::State::kPending);
  health.OnProbe(true, 0);
  EXPECT_EQ(health.state(), Health::State::kUp);
  health.OnProbe(false, kSecond);
  EXPECT_EQ(health.state(), Health::State::kUp);
  health.OnProbe(false, 2 * kSecond);
  EXPECT_EQ(health.state(), Health::State::kDown);
  health.OnProbe(true, 3 * kSecond);
  EXPECT_EQ(health.state(), Health::State::kDown);
  health.OnProbe(true, 4 * kSecond);
  EXPECT_EQ(health.state(), Health::State::kUp);
  EXPECT_DOUBLE_EQ(health.Weight(4 * kSecond), Health::kFirstWeight);
  EXPECT_DOUBLE_EQ(health.Weight(9 * kSecond), 0.55);
  EXPECT_DOUBLE_EQ(health.Weight(60 * kSecond), 1.0);
}

TEST(Health, ARefusedConnectionIsEnough) {
  Health health({});
  health.OnProbe(true, 0);
  health.OnLost(5 * kSecond);
  EXPECT_EQ(health.state(), Health::State::kDown);
  int64_t now_ns = 5 * kSecond;
  for (const int64_t wait_ms : {100, 100, 200, 400, 800, 1000, 1000}) {
    EXPECT_EQ(health.next_probe_ns() - now_ns, wait_ms * kMs);
    now_ns = health.next_probe_ns();
    health.OnProbe(false, now_ns);
  }
  now_ns = health.next_probe_ns();
  health.OnProbe(true, now_ns);
  EXPECT_EQ(health.next_probe_ns() - now_ns, 100 * kMs);
}

TEST(Outlier, EjectsAWorkerThatStandsOutAndNoneWhenAllFail) {
  OutlierScore score({.min_requests = 10});
  for (int i = 0; i < 100; ++i) score.Count(i % 4 != 0);
  EXPECT_FALSE(score.Judge(0.5, 0));
  EXPECT_TRUE(score.Judge(0.0, 0));
  EXPECT_TRUE(score.Ejected(kSecond));
  EXPECT_FALSE(score.Ejected(31 * kSecond));
  EXPECT_FALSE(score.Judge(0.0, 31 * kSecond));  // a clean record
}

TEST(Retry, HappensOnlyBeforeTheFirstByteAndOnlyWhereItIsSafe) {
  Rng rng(1);
  const auto decide = [&](RetryInput input) { return DecideRetry({}, input, rng).retry; };
  EXPECT_TRUE(decide({.end = AttemptEnd::kBroken, .safe_route = true}));
  EXPECT_FALSE(decide({.end = AttemptEnd::kBroken, .client_has_bytes = true, .safe_route = true}));
  EXPECT_FALSE(decide({.end = AttemptEnd::kBroken, .safe_route = false}));
  EXPECT_TRUE(decide({.end = AttemptEnd::kNoConnection, .safe_route = false}));
  EXPECT_FALSE(decide({.end = AttemptEnd::kBroken, .body_is_whole = false, .safe_route = true}));
  EXPECT_FALSE(decide({.end = AttemptEnd::kOk, .safe_route = true}));
  EXPECT_FALSE(decide({.end = AttemptEnd::kCancelled, .safe_route = true}));
  EXPECT_FALSE(decide({.end = AttemptEnd::kFault, .retries_so_far = 5, .safe_route = true}));
  EXPECT_TRUE(decide({.end = AttemptEnd::kFault, .retries_so_far = 4, .safe_route = true}));
  EXPECT_FALSE(decide({.end = AttemptEnd::kBusy, .safe_route = true}));
  EXPECT_TRUE(decide({.end = AttemptEnd::kBusy, .safe_route = true, .other_worker = true}));
}

TEST(Retry, AnAttemptThatReachedNobodyCostsNoneButIsBounded) {
  Rng rng(1);
  const auto decide = [&](RetryInput input) { return DecideRetry({}, input, rng); };
  for (const AttemptEnd end : {AttemptEnd::kNoConnection, AttemptEnd::kStale}) {
    const auto again = decide({.end = end, .retries_so_far = 3, .safe_route = true});
    EXPECT_TRUE(again.retry);
    EXPECT_EQ(again.delay_ns, 0);
    EXPECT_FALSE(decide({.end = end, .unsent_so_far = kMaxUnsent, .safe_route = true}).retry);
  }
  EXPECT_FALSE(DecideRetry({.max_retries = 0}, {.end = AttemptEnd::kNoConnection}, rng).retry);
}

TEST(Retry, WaitsLongerEachTimeWithinItsJitterAndNotAtAllForAnotherWorker) {
  Rng rng(1);
  const RetryOptions options;
  EXPECT_EQ(DecideRetry(options,
                        {.end = AttemptEnd::kFault, .safe_route = true, .other_worker = true}, rng)
                .delay_ns,
            0);
  double expected = 50e6;
  for (int retries = 0; retries < options.max_retries; ++retries, expected *= options.multiplier) {
    for (int i = 0; i < 100; ++i) {
      const auto decision = DecideRetry(
          options, {.end = AttemptEnd::kFault, .retries_so_far = retries, .safe_route = true}, rng);
      EXPECT_GE(static_cast<double>(decision.delay_ns), expected * 0.79);
      EXPECT_LE(static_cast<double>(decision.delay_ns), expected * 1.21);
    }
  }
}

TEST(Retry, StatusesSayWhoIsToBlame) {
  for (int status : {200, 400, 401, 403, 404, 413, 418}) {
    EXPECT_EQ(EndOfStatus(status, false), AttemptEnd::kOk) << status;
  }
  for (int status : {408, 500, 502, 503, 504}) {
    EXPECT_EQ(EndOfStatus(status, false), AttemptEnd::kFault) << status;
  }
  EXPECT_EQ(EndOfStatus(429, false), AttemptEnd::kBusy);
  EXPECT_EQ(EndOfStatus(503, true), AttemptEnd::kBusy);
  EXPECT_FALSE(IsFault(AttemptEnd::kBusy));
  EXPECT_FALSE(IsFault(AttemptEnd::kStale));
}

}  // namespace
}  // namespace hayate::gateway
