#include "http/cors.h"

#include <gmock/gmock.h>

#include "http/detail/server_fixture.h"

namespace hayate::http {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class CorsTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> origins) {
    options_.allowed_origins = std::move(origins);
    auto created = Server::Create({});
    ASSERT_TRUE(created.ok());
    server_ = std::move(*created);
    ASSERT_TRUE(server_
                    ->Start([this](Request& request, ResponseWriter writer) {
                      if (ApplyCors(options_, request, writer)) return;
                      writer.Send({.status = 401}, "answered");
                    })
                    .ok());
  }
  void TearDown() override { (void)server_->Shutdown(std::chrono::milliseconds(0)); }

  std::string Ask(const std::string& method, const std::string& fields) {
    RawClient client(server_->port());
    client.Send(method + " / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + fields + "\r\n");
    return client.ReadAll();
  }

  CorsOptions options_;
  std::unique_ptr<Server> server_;
};

constexpr const char* kPreflight =
    "Origin: https://a.test\r\nAccess-Control-Request-Method: POST\r\n"
    "Access-Control-Request-Headers: authorization, x-custom\r\n";

TEST_F(CorsTest, AnAllowedOriginReadsEveryAnswerErrorsIncluded) {
  Start({"https://a.test"});
  const std::string answer = Ask("GET", "Origin: https://a.test\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(answer, HasSubstr("\r\nAccess-Control-Allow-Origin: https://a.test\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nVary: Origin\r\n"));
}

TEST_F(CorsTest, OthersGetNoLeave) {
  Start({"https://a.test"});
  for (const char* origin : {"https://b.test", "https://a.test.b.test", "null"}) {
    const std::string fields = "Origin: " + std::string(origin) + "\r\n";
    const std::string answer = Ask("GET", fields);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 401"));
    EXPECT_THAT(answer, Not(HasSubstr("Access-Control")));
    const std::string asked = Ask("OPTIONS", fields + "Access-Control-Request-Method: POST\r\n");
    EXPECT_THAT(asked, StartsWith("HTTP/1.1 403"));
    EXPECT_THAT(asked, Not(HasSubstr("Access-Control-Allow")));
  }
  EXPECT_THAT(Ask("GET", ""), Not(HasSubstr("Access-Control")));
}

TEST_F(CorsTest, APreflightIsAnsweredAtOnce) {
  Start({"*"});
  const std::string answer = Ask("OPTIONS", kPreflight);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 204"));
  EXPECT_THAT(answer, HasSubstr("\r\nAccess-Control-Allow-Origin: *\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nAccess-Control-Allow-Headers: authorization, x-custom\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\nAccess-Control-Max-Age: 600\r\n"));
}

TEST_F(CorsTest, WithoutOriginsNothingChanges) {
  Start({});
  const std::string answer = Ask("OPTIONS", kPreflight);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(answer, Not(HasSubstr("Access-Control")));
}

}  // namespace
}  // namespace hayate::http
