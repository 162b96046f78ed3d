#include "api/response_store.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace hayate::api {
namespace {

StoredResponse Response(size_t size, std::string status = "completed") {
  return {R"({"id":"x","status":")" + status + R"(","output":")" + std::string(size, 'x') + "\"}",
          std::make_shared<ResponseItems>(ResponseItems{R"({"type":"message"})"}),
          {R"({"type":"reasoning"})"}};
}

TEST(ResponseStore, ALongestUnusedResponseMakesRoom) {
  ResponseStore store({.max_responses = 3, .max_bytes = 1 << 20});
  for (const char* id : {"a", "b", "c"}) store.Finish(id, Response(10), false);
  EXPECT_TRUE(store.Body("a", 0).ok());
  store.Finish("d", Response(10), false);
  EXPECT_TRUE(store.Body("a", 0).ok());
  EXPECT_EQ(store.Body("b", 0).status().code(), ErrorCode::kNotFound);
  EXPECT_TRUE(store.Body("c", 0).ok());
  EXPECT_TRUE(store.Body("d", 0).ok());
}

TEST(ResponseStore, WhatIsLargerThanTheStoreIsNotKeptAndDisplacesNothing) {
  ResponseStore store({.max_responses = 10, .max_bytes = 5000});
  store.Finish("small", Response(10), false);
  store.Finish("large", Response(10'000), false);
  EXPECT_FALSE(store.Body("large", 0).ok());
  EXPECT_TRUE(store.Body("small", 0).ok());
}

TEST(ResponseStore, AConversationIsInputThenOutput) {
  ResponseStore store({});
  store.Finish("a", Response(1), false);
  EXPECT_EQ(*store.Conversation("a", 0),
            (ResponseItems{R"({"type":"message"})", R"({"type":"reasoning"})"}));
  EXPECT_EQ((*store.Input("a", 0))->size(), 1u);
}

TEST(ResponseStore, ARunningResponseIsCancelledOnceAndStaysCancelled) {
  ResponseStore store({});
  int cancelled = 0;
  ASSERT_TRUE(store.Begin("a", Response(1, "queued"), [&] { ++cancelled; }).ok());
  EXPECT_EQ(store.Conversation("a", 0).status().code(), ErrorCode::kInvalidArgument);
  store.Update("a", R"({"status":"in_progress"})");
  EXPECT_EQ(*store.Body("a", 0), R"({"status":"in_progress"})");
  EXPECT_EQ(*store.Cancel("a", 0), R"({"status":"cancelled"})");
  EXPECT_EQ(*store.Cancel("a", 0), R"({"status":"cancelled"})");
  EXPECT_EQ(cancelled, 1);
  store.Finish("a", Response(1), true);
  store.Update("a", R"({"status":"in_progress"})");
  EXPECT_EQ(*store.Body("a", 0), R"({"status":"cancelled"})");
}

TEST(ResponseStore, AnotherOwnersResponseIsNone) {
  ResponseStore store({});
  StoredResponse mine = Response(1);
  mine.owner = 7;
  store.Finish("a", mine, false);
  EXPECT_TRUE(store.Body("a", 7).ok());
  EXPECT_EQ(store.Body("a", 8).status().code(), ErrorCode::kNotFound);
  EXPECT_EQ(store.Conversation("a", 8).status().code(), ErrorCode::kNotFound);
  EXPECT_EQ(store.Cancel("a", 8).status().code(), ErrorCode::kNotFound);
  EXPECT_EQ(store.Erase("a", 8).code(), ErrorCode::kNotFound);
  EXPECT_TRUE(store.Erase("a", 7).ok());
}

TEST(ResponseStore, OnlyWhatRunsInTheBackgroundCanBeCancelled) {
  ResponseStore store({});
  store.Finish("a", Response(1), false);
  EXPECT_EQ(store.Cancel("a", 0).status().code(), ErrorCode::kInvalidArgument);
  ASSERT_TRUE(store.Begin("b", Response(1), [] {}).ok());
  store.Finish("b", Response(1), true);
  EXPECT_EQ(store.Cancel("b", 0).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(store.Cancel("c", 0).status().code(), ErrorCode::kNotFound);
}

TEST(ResponseStore, AnErasedResponseStopsAndDoesNotComeBack) {
  ResponseStore store({});
  int cancelled = 0;
  ASSERT_TRUE(store.Begin("a", Response(1), [&] { ++cancelled; }).ok());
  EXPECT_TRUE(store.Erase("a", 0).ok());
  EXPECT_EQ(cancelled, 1);
  store.Finish("a", Response(1), true);
  EXPECT_FALSE(store.Body("a", 0).ok());
  EXPECT_EQ(store.Erase("a", 0).code(), ErrorCode::kNotFound);
  EXPECT_EQ(store.num_bytes(), 0u);
}

TEST(ResponseStore, RunningResponsesAreKeptAndBounded) {
  ResponseStore store({.max_responses = 2, .max_bytes = 1 << 20});
  ASSERT_TRUE(store.Begin("a", Response(1), [] {}).ok());
  ASSERT_TRUE(store.Begin("b", Response(1), [] {}).ok());
  EXPECT_EQ(store.Begin("c", Response(1), [] {}).code(), ErrorCode::kResourceExhausted);
  store.Finish("d", Response(1), false);
  EXPECT_TRUE(store.Body("a", 0).ok());
  EXPECT_TRUE(store.Body("b", 0).ok());
  EXPECT_FALSE(store.Body("d", 0).ok());
}

TEST(ResponseStore, BooksBalanceUnderAnyOrderOfCalls) {
  constexpr size_t kMaxBytes = 20'000;
  ResponseStore store({.max_responses = 8, .max_bytes = kMaxBytes});
  std::mt19937 random(7);
  std::vector<std::string> ids;
  for (int i = 0; i < 12; ++i) ids.push_back("r" + std::to_string(i));
  for (int step = 0; step < 20'000; ++step) {
    const std::string& id = ids[random() % ids.size()];
    const size_t size = random() % 4000;
    switch (random() % 6) {
      case 0:
        (void)store.Begin(id, Response(size), [] {});
        break;
      case 1:
        store.Update(id, Response(size % 100).body);
        break;
      case 2:
        store.Finish(id, Response(size), random() % 2 == 0);
        break;
      case 3:
        (void)store.Cancel(id, 0);
        break;
      case 4:
        (void)store.Erase(id, 0);
        break;
      default:
        (void)store.Body(id, 0);
    }
    ASSERT_LE(store.num_responses(), 8u);
    ASSERT_LE(store.num_bytes(), kMaxBytes + 4000);
  }
  for (const std::string& id : ids) (void)store.Erase(id, 0);
  EXPECT_EQ(store.num_responses(), 0u);
  EXPECT_EQ(store.num_bytes(), 0u);
}

TEST(ResponseStore, TheStatusThatChangesIsTheResponsesOwn) {
  const std::string body = R"({"id":"a","status":"queued","echo":{"status":"queued"}})";
  EXPECT_EQ(WithStatus(body, "cancelled"),
            R"({"id":"a","status":"cancelled","echo":{"status":"queued"}})");
}

}  // namespace
}  // namespace hayate::api
