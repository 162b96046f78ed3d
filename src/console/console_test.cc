#include "console/console.h"

#include <gmock/gmock.h>

#include <map>
#include <regex>

#include "console/files.h"
#include "http/client.h"

namespace hayate::console {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ConsoleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto created = http::Server::Create({.listen = {"127.0.0.1", 0}});
    ASSERT_TRUE(created.ok());
    server_ = std::move(*created);
    ASSERT_TRUE(server_
                    ->Start([](http::Request& request, http::ResponseWriter writer) {
                      if (!Answer(request, writer)) writer.Send({.status = 404}, "not the console");
                    })
                    .ok());
  }
  void TearDown() override { (void)server_->Shutdown(std::chrono::milliseconds(0)); }

  struct Reply {
    int status = 0;
    std::map<std::string, std::string> fields;
    std::string body;
  };
  Reply Ask(std::string target, std::string method = "GET", std::string tag = {}) {
    auto client = http::BlockingClient::Create({"127.0.0.1", server_->port()}, {});
    http::ClientRequest request{.method = std::move(method), .target = std::move(target)};
    if (!tag.empty()) request.headers.emplace_back("If-None-Match", tag);
    auto response = client->Fetch(std::move(request), 1 << 20);
    if (!response.ok()) return {};
    Reply reply{.status = response->status, .body = std::move(response->body)};
    for (auto& [name, value] : response->headers) reply.fields[name] = value;
    return reply;
  }

  std::unique_ptr<http::Server> server_;
};

TEST_F(ConsoleTest, ThePageAndAllThatItNamesAreThere) {
  const Reply page = Ask("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.fields.at("Content-Type"), "text/html; charset=utf-8");
  const std::regex link("(?:src|href)=\"([^\"]+)\"");
  int links = 0;
  for (std::sregex_iterator it(page.body.begin(), page.body.end(), link), end; it != end; ++it) {
    EXPECT_EQ(Ask("/" + (*it)[1].str()).status, 200) << (*it)[1];
    ++links;
  }
  EXPECT_GE(links, 3);
  const std::regex import("from \"\\./([^\"]+)\"");
  for (const File& file : Files()) {
    const std::string text(file.bytes);
    for (std::sregex_iterator it(text.begin(), text.end(), import), end; it != end; ++it) {
      EXPECT_EQ(Ask("/console/" + (*it)[1].str()).status, 200) << file.name << ": " << (*it)[1];
    }
  }
}

TEST_F(ConsoleTest, NothingComesFromElsewhereAndNothingIsInline) {
  for (const File& file : Files()) {
    const Reply reply = Ask("/console/" + std::string(file.name));
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, file.bytes);
    EXPECT_THAT(reply.fields.at("Content-Security-Policy"), HasSubstr("default-src 'none'"));
    EXPECT_THAT(reply.fields.at("Content-Security-Policy"), Not(HasSubstr("unsafe")));
    EXPECT_EQ(reply.fields.at("X-Content-Type-Options"), "nosniff");
    const std::string text(file.bytes);
    EXPECT_FALSE(std::regex_search(text, std::regex("(src|href|fetch\\()=?\"?(https?:)?//")))
        << file.name;
    EXPECT_FALSE(std::regex_search(text, std::regex("<script>|<style|\\son[a-z]+=|\\sstyle=")))
        << file.name;
    EXPECT_THAT(text, Not(HasSubstr("innerHTML"))) << file.name;
  }
}

TEST_F(ConsoleTest, AnUnchangedFileIsNotSentAgain) {
  const std::string tag = Ask("/").fields.at("ETag");
  const Reply again = Ask("/", "GET", tag);
  EXPECT_EQ(again.status, 304);
  EXPECT_EQ(again.body, "");
  EXPECT_EQ(Ask("/", "GET", "\"other\"").status, 200);
}

TEST_F(ConsoleTest, LeavesEverythingElseAlone) {
  for (const char* target : {"/v1/models", "/console", "/console/", "/console/../index.html",
                             "/console/none.js", "/index.html", "/metrics"}) {
    EXPECT_EQ(Ask(target).status, 404) << target;
  }
  EXPECT_EQ(Ask("/", "POST").status, 404);
  const Reply head = Ask("/", "HEAD");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
}

}  // namespace
}  // namespace hayate::console
