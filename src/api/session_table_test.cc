#include "api/session_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hayate::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SessionTableTest : public ::testing::Test {
 protected:
  // Runs a turn to its end and gives what stood before its own tokens.
  std::vector<TokenId> Run(const SessionTurn& turn, const std::string& rid,
                           std::vector<TokenId> own, std::vector<TokenId> output) {
    auto prefix = table_.Begin(turn, rid);
    EXPECT_TRUE(prefix.ok()) << prefix.status().ToString();
    std::vector<TokenId> prompt = *prefix;
    prompt.insert(prompt.end(), own.begin(), own.end());
    table_.Finish(turn, rid, std::move(prompt), std::move(output));
    return *std::move(prefix);
  }
  std::string WhyNot(const SessionTurn& turn, const std::string& rid) {
    return table_.Begin(turn, rid).status().message();
  }

  VirtualClock clock_;
  SessionTable table_{
      {.max_sessions = 2, .max_turns = 4, .max_tokens = 40, .idle_ns = 1000}, clock_, 1};
};

TEST_F(SessionTableTest, TurnsGoOnFromAnyFinishedOne) {
  ASSERT_EQ(table_.Open("s", 0).value(), "s");
  EXPECT_THAT(Run({.session = "s"}, "a", {1, 2}, {3}), IsEmpty());
  EXPECT_THAT(Run({.session = "s", .parent = "a"}, "b", {4}, {5}), ElementsAre(1, 2, 3));
  // Branches from the same turn.
  EXPECT_THAT(Run({.session = "s", .parent = "a", .offset = 2}, "c", {9}, {}), ElementsAre(1, 2));
  EXPECT_THAT(Run({.session = "s", .parent = "b", .drop_previous_output = true}, "d", {}, {}),
              ElementsAre(1, 2, 3, 4));
}

TEST_F(SessionTableTest, ReplacingTakesLaterTurnsBack) {
  ASSERT_TRUE(table_.Open("s", 0).ok());
  Run({.session = "s"}, "a", {1}, {2});
  Run({.session = "s", .parent = "a"}, "b", {3}, {4});
  Run({.session = "s", .parent = "b"}, "c", {5}, {6});
  EXPECT_THAT(Run({.session = "s", .parent = "a", .replace = true}, "d", {7}, {8}),
              ElementsAre(1, 2));
  EXPECT_THAT(WhyNot({.session = "s", .parent = "c"}, "e"), HasSubstr("no turn 'c'"));
  EXPECT_THAT(Run({.session = "s", .replace = true}, "f", {1}, {1}), IsEmpty());
  EXPECT_THAT(WhyNot({.session = "s", .parent = "a"}, "g"), HasSubstr("no turn 'a'"));
}

TEST_F(SessionTableTest, WhatCannotBeGoneOnFromIsRefused) {
  EXPECT_THAT(WhyNot({.session = "x"}, "a"), HasSubstr("session_params.id: no session 'x'"));
  ASSERT_TRUE(table_.Open("s", 3).ok());
  EXPECT_THAT(table_.Open("s", 0).status().message(), HasSubstr("open already"));
  ASSERT_TRUE(table_.Begin({.session = "s"}, "a").ok());
  EXPECT_THAT(WhyNot({.session = "s", .parent = "a"}, "b"), HasSubstr("still running"));
  EXPECT_THAT(WhyNot({.session = "s"}, "a"), HasSubstr("earlier turn"));
  table_.Finish({.session = "s"}, "a", {1, 2, 3}, {4});
  EXPECT_EQ(table_.Begin({.session = "s", .parent = "a"}, "b").status().code(),
            ErrorCode::kContextTooLong);
  ASSERT_TRUE(table_.Close("s").ok());
  EXPECT_EQ(table_.Close("s").code(), ErrorCode::kNotFound);
  table_.Finish({.session = "s"}, "a", {1}, {});  // its end comes late
}

TEST_F(SessionTableTest, NumbersAreBoundedAndIdleSessionsMakeRoom) {
  const std::string made_up = table_.Open("", 0).value();
  EXPECT_EQ(made_up.size(), 32u);
  ASSERT_TRUE(table_.Open("s", 0).ok());
  EXPECT_EQ(table_.Open("t", 0).status().code(), ErrorCode::kResourceExhausted);
  clock_.AdvanceNs(999);
  Run({.session = "s"}, "a", std::vector<TokenId>(20), std::vector<TokenId>(20));
  // No token more fits: the turn is not kept.
  ASSERT_TRUE(table_.Begin({.session = "s"}, "b").ok());
  table_.Finish({.session = "s"}, "b", {1}, {});
  EXPECT_THAT(WhyNot({.session = "s", .parent = "b"}, "c"), HasSubstr("no turn 'b'"));
  clock_.AdvanceNs(1);
  ASSERT_TRUE(table_.Open("t", 0).ok());
  EXPECT_EQ(table_.Close(made_up).code(), ErrorCode::kNotFound);
  for (const char* rid : {"1", "2", "3", "4"}) {
    ASSERT_TRUE(table_.Begin({.session = "t"}, rid).ok());
  }
  EXPECT_EQ(table_.Begin({.session = "t"}, "5").status().code(), ErrorCode::kResourceExhausted);
  table_.Drop({.session = "t"}, "1");
  EXPECT_TRUE(table_.Begin({.session = "t"}, "5").ok());
}

}  // namespace
}  // namespace hayate::api
