#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "base/align.h"
#include "base/bounded_queue.h"
#include "base/constant_time.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "base/mapped_file.h"
#include "base/rng.h"
#include "base/thread_pool.h"

namespace hayate {
namespace {

Result<int> Half(int value) {
  if (value % 2 != 0) return InvalidField("value", "{} is odd", value);
  return value / 2;
}

Result<int> Quarter(int value) {
  ASSIGN_OR_RETURN(const int half, Half(value));
  return Half(half);
}

TEST(Result, PropagatesTheFirstError) {
  EXPECT_EQ(Quarter(8).value(), 2);
  const Result<int> failed = Quarter(6);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().message(), "value: 3 is odd");
  EXPECT_EQ(failed.status().param(), "value");
  EXPECT_EQ(failed.status().Under("config").message(), "config: value: 3 is odd");
}

TEST(CheckDeathTest, PrintsConditionAndValues) {
  EXPECT_DEATH(CHECK_EQ(1 + 1, 3) << "sum", "1 \\+ 1.*2 vs 3 sum");
}

TEST(Philox, MatchesTheReferenceVectors) {
  // Known answers of Random123 for Philox4x32-10.
  EXPECT_EQ(Philox4x32(0, 0, 0),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32(~0ull, ~0ull, ~0ull),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(JsonWriter, EscapesAndRepairsStrings) {
  std::string out;
  JsonWriter writer(out);
  writer.BeginObject();
  writer.Field("text", "a\"b\\\n\x01 é \xF0\x9F\xA6\x99 \xC3(");
  writer.Field("ok", true);
  writer.Key("list");
  writer.BeginArray();
  writer.Int(-3);
  writer.Double(0.1);
  writer.Double(std::numeric_limits<double>::infinity());
  writer.EndArray();
  writer.EndObject();
  EXPECT_EQ(out,
            "{\"text\":\"a\\\"b\\\\\\n\\u0001 é \xF0\x9F\xA6\x99 \xEF\xBF\xBD(\",\"ok\":true,"
            "\"list\":[-3,0.1,null]}");
}

TEST(BoundedQueue, RefusesAtCapacityAndDrainsAfterClose) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.TryPush(1));
  EXPECT_TRUE(queue.TryPush(2));
  EXPECT_FALSE(queue.TryPush(3));
  queue.Close();
  EXPECT_FALSE(queue.TryPush(4));
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), 2);
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

TEST(ThreadPool, FinishesQueuedWorkBeforeItEnds) {
  std::atomic<int> done{0};
  {
    ThreadPool pool("pool", 2, 100);
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(pool.TrySubmit([&] { ++done; }));
  }
  EXPECT_EQ(done, 50);
}

TEST(MappedFile, ReadsBytesAndNamesMissingFiles) {
  const auto path = std::filesystem::temp_directory_path() / "hayate_mapped_file_test";
  std::ofstream(path) << "hayate";
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->bytes().size(), 6u);
  EXPECT_EQ(ReadFile(path, 100).value(), "hayate");
  EXPECT_EQ(ReadFile(path, 3).status().code(), ErrorCode::kPayloadTooLarge);
  std::filesystem::remove(path);
  EXPECT_EQ(MappedFile::Open(path).status().code(), ErrorCode::kNotFound);
}

TEST(ConstantTime, OnlyEqualSecretsAreEqual) {
  EXPECT_TRUE(EqualConstantTime("secret", "secret"));
  for (const char* sent : {"", "s", "secreT", "Secret", "secretsecret", "secrets"}) {
    EXPECT_FALSE(EqualConstantTime(sent, "secret")) << sent;
  }
  EXPECT_FALSE(EqualConstantTime("", ""));
  EXPECT_FALSE(EqualConstantTime("a", ""));
}

TEST(Align, RoundsUpAndDown) {
  EXPECT_EQ(AlignUp(33, 32), 64);
  EXPECT_EQ(AlignDown(33, 32), 32);
  EXPECT_EQ(CeilDiv(33, 32), 2);
}

}  // namespace
}  // namespace hayate
