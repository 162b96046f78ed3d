#include "api/access_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace hayate::api {
namespace {

using ::testing::HasSubstr;

class AccessControlTest : public ::testing::Test {
 protected:
  void SetUp() override { thread_ = http::IoThread::Start({}).value(); }
  void Make(AccessOptions options) {
    auto access = AccessControl::Create(std::move(options));
    ASSERT_TRUE(access.ok()) << access.status().ToString();
    access_ = *std::move(access);
  }
  Result<AccessControl::Caller> Admit(Access access, std::vector<http::Header> headers = {},
                                      std::string_view peer = "10.0.0.1") {
    http::Request request{.headers = http::HeaderView(headers), .peer = peer, .thread = *thread_};
    return access_->Admit(request, access);
  }
  ErrorCode CodeOf(Access access, std::vector<http::Header> headers = {},
                   std::string_view peer = "10.0.0.1") {
    return Admit(access, std::move(headers), peer).status().code();
  }

  std::unique_ptr<http::IoThread> thread_;
  std::unique_ptr<AccessControl> access_;
};

http::Header Bearer(std::string_view value) { return {"Authorization", value}; }

TEST_F(AccessControlTest, WithoutKeysClientsAreOpenAndOperatorsLocal) {
  Make({});
  EXPECT_EQ(CodeOf(Access::kClient), ErrorCode::kOk);
  EXPECT_EQ(CodeOf(Access::kAdminIfKeyed), ErrorCode::kOk);
  EXPECT_EQ(CodeOf(Access::kAdmin), ErrorCode::kPermissionDenied);
  EXPECT_EQ(CodeOf(Access::kAdmin, {}, ""), ErrorCode::kPermissionDenied);
  EXPECT_EQ(CodeOf(Access::kAdmin, {}, "127.0.0.1"), ErrorCode::kOk);
}

TEST_F(AccessControlTest, AnyOfSeveralKeysAdmitsInAnyOfItsHeaders) {
  Make({.keys = {"one", "two"}});
  EXPECT_EQ(CodeOf(Access::kClient), ErrorCode::kUnauthenticated);
  EXPECT_EQ(CodeOf(Access::kClient, {Bearer("Bearer three")}), ErrorCode::kUnauthenticated);
  EXPECT_EQ(CodeOf(Access::kClient, {Bearer("one")}), ErrorCode::kUnauthenticated);
  EXPECT_EQ(CodeOf(Access::kClient, {Bearer("Bearer ")}), ErrorCode::kUnauthenticated);
  EXPECT_EQ(Admit(Access::kClient, {Bearer("bearer two")})->key_id, "api-key-1");
  EXPECT_EQ(Admit(Access::kClient, {{"x-api-key", "one"}})->key_id, "api-key-0");
  // A proxy added its own in front of the client's.
  EXPECT_EQ(Admit(Access::kClient, {Bearer("Bearer no"), Bearer("Bearer one")})->key_id,
            "api-key-0");
  // Without an operator's key its routes are for this machine, and for who has a key there.
  EXPECT_EQ(CodeOf(Access::kAdmin, {Bearer("Bearer one")}), ErrorCode::kPermissionDenied);
  EXPECT_EQ(CodeOf(Access::kAdmin, {}, "::1"), ErrorCode::kUnauthenticated);
  EXPECT_EQ(CodeOf(Access::kAdmin, {Bearer("Bearer one")}, "::1"), ErrorCode::kOk);
  EXPECT_EQ(CodeOf(Access::kOpen), ErrorCode::kOk);
}

TEST_F(AccessControlTest, TheOperatorsKeyOpensEverything) {
  Make({.keys = {"one"}, .admin_key = "root"});
  for (const Access access : {Access::kClient, Access::kAdminIfKeyed, Access::kAdmin}) {
    EXPECT_EQ(CodeOf(access, {Bearer("Bearer root")}), ErrorCode::kOk);
  }
  for (const Access access : {Access::kAdminIfKeyed, Access::kAdmin}) {
    EXPECT_EQ(CodeOf(access, {Bearer("Bearer one")}, "127.0.0.1"), ErrorCode::kPermissionDenied);
    EXPECT_EQ(CodeOf(access, {}, "127.0.0.1"), ErrorCode::kUnauthenticated);
  }
  Make({.admin_key = "root"});
  EXPECT_EQ(CodeOf(Access::kClient), ErrorCode::kOk);
}

TEST_F(AccessControlTest, AKeyHasSoManyRequestsUnderWay) {
  Make({.keys = {"one", "two"}, .admin_key = "root", .max_concurrent_per_key = 2});
  auto first = Admit(Access::kClient, {Bearer("Bearer one")});
  auto second = Admit(Access::kClient, {Bearer("Bearer one")});
  EXPECT_EQ(CodeOf(Access::kClient, {Bearer("Bearer one")}), ErrorCode::kResourceExhausted);
  EXPECT_EQ(CodeOf(Access::kClient, {Bearer("Bearer one")}), ErrorCode::kResourceExhausted);
  EXPECT_EQ(CodeOf(Access::kClient, {Bearer("Bearer two")}), ErrorCode::kOk);
  first->use = KeyUse();
  EXPECT_EQ(CodeOf(Access::kClient, {Bearer("Bearer one")}), ErrorCode::kOk);
  std::vector<AccessControl::Caller> operators;
  for (int i = 0; i < 5; ++i) {
    operators.push_back(Admit(Access::kClient, {Bearer("Bearer root")}).value());
  }
}

TEST_F(AccessControlTest, TheKeyFileIsReadAgainAndABrokenOneChangesNothing) {
  const auto path =
      std::filesystem::temp_directory_path() / ("hayate_keys_test_" + std::to_string(::getpid()));
  const auto write = [&](std::string_view text) { std::ofstream(path) << text; };
  write(R"({"keys":[{"id":"a","key":"k1","max_concurrent":1},{"key":"k2","admin":true}]})");
  Make({.key_file = path.string()});
  auto held = Admit(Access::kClient, {Bearer("Bearer k1")});
  EXPECT_EQ(held->key_id, "a");
  EXPECT_EQ(CodeOf(Access::kAdmin, {Bearer("Bearer k2")}), ErrorCode::kOk);
  write(R"({"keys":[{"id":"a","key":"k1","max_concurrent":1},{"id":"c","key":"k3"}]})");
  ASSERT_TRUE(access_->Reload().ok());
  EXPECT_EQ(CodeOf(Access::kClient, {Bearer("Bearer k2")}), ErrorCode::kUnauthenticated);
  EXPECT_EQ(Admit(Access::kClient, {Bearer("Bearer k3")})->key_id, "c");
  // What was under way before still counts.
  EXPECT_EQ(CodeOf(Access::kClient, {Bearer("Bearer k1")}), ErrorCode::kResourceExhausted);
  held->use = KeyUse();
  EXPECT_EQ(CodeOf(Access::kClient, {Bearer("Bearer k1")}), ErrorCode::kOk);
  write(R"({"keys":[{"id":"c"}]})");
  EXPECT_THAT(access_->Reload().message(), HasSubstr("keys[0].key"));
  EXPECT_EQ(CodeOf(Access::kClient, {Bearer("Bearer k3")}), ErrorCode::kOk);
  std::filesystem::remove(path);
  EXPECT_FALSE(access_->Reload().ok());
  EXPECT_EQ(CodeOf(Access::kClient, {Bearer("Bearer k3")}), ErrorCode::kOk);
}

TEST(KeyFile, BadOnesNameTheEntryAndTheField) {
  const struct {
    const char* json;
    const char* says;
  } cases[] = {
      {"[]", "JSON object"},
      {"{}", "keys: is missing"},
      {R"({"keys":{}})", "keys"},
      {R"({"keys":[1]})", "keys[0]: must be an object"},
      {R"({"keys":[{"key":""}]})", "keys[0].key"},
      {R"({"keys":[{"key":"a"},{"key":"b","max_concurrent":-1}]})", "keys[1].max_concurrent"},
      {R"({"keys":[{"key":"a","admin":"yes"}]})", "keys[0].admin"}};
  for (const auto& c : cases) {
    EXPECT_THAT(ParseKeyFile(c.json).status().message(), HasSubstr(c.says)) << c.json;
  }
}

}  // namespace
}  // namespace hayate::api
