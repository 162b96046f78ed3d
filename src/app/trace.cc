// hayate trace: the steps of a running server, for chrome://tracing and ui.perfetto.dev.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include "app/commands.h"
#include "app/server_address.h"
#include "base/error.h"
#include "http/client.h"

namespace hayate::app {
namespace {

constexpr size_t kMaxTraceBytes = 64 << 20;
constexpr int kMaxSteps = 4096;  // what a server remembers
constexpr std::chrono::milliseconds kPoll{50};

struct TraceOptions {
  std::string url = "http://127.0.0.1:30000";
  std::string api_key;
  int steps = 100;
  bool last = false;
  int wait_seconds = 60;
  std::string output = "hayate.trace.json";
};

struct Reply {
  std::string json;
  int64_t steps_so_far = 0;
};

Result<Reply> AskTrace(http::BlockingClient& client, const ServerAddress& address,
                       const TraceOptions& options, int steps) {
  http::ClientRequest request;
  request.target = fmt::format("{}/trace?steps={}", address.base_path, steps);
  if (!options.api_key.empty()) {
    request.headers.emplace_back("Authorization", "Bearer " + options.api_key);
  }
  ASSIGN_OR_RETURN(auto response, client.Fetch(std::move(request), kMaxTraceBytes));
  if (response.status == 401 || response.status == 403) {
    return Error(ErrorCode::kUnauthenticated,
                 "{} wants the operator's key (--api-key), or a call from its own machine",
                 address.url);
  }
  if (response.status != 200) {
    return Error(ErrorCode::kUnavailable, "{} answers {} to /trace", address.url, response.status);
  }
  Reply reply{.json = std::move(response.body)};
  for (const auto& [name, value] : response.headers) {
    if (!http::EqualsIgnoreCase(name, "X-Hayate-Steps")) continue;
    std::from_chars(value.data(), value.data() + value.size(), reply.steps_so_far);
  }
  return reply;
}

// Returns once the server has made so many steps more; kDeadlineExceeded when it does not.
Status AwaitSteps(http::BlockingClient& client, const ServerAddress& address,
                  const TraceOptions& options) {
  ASSIGN_OR_RETURN(const Reply before, AskTrace(client, address, options, 1));
  const auto give_up =
      std::chrono::steady_clock::now() + std::chrono::seconds(options.wait_seconds);
  while (std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(kPoll);
    ASSIGN_OR_RETURN(const Reply reply, AskTrace(client, address, options, 1));
    if (reply.steps_so_far >= before.steps_so_far + options.steps) return OkStatus();
  }
  return Error(ErrorCode::kDeadlineExceeded,
               "no {} steps within {} s; --last takes those that were", options.steps,
               options.wait_seconds);
}

Status WriteTrace(const TraceOptions& options) {
  ASSIGN_OR_RETURN(const ServerAddress address, ParseServerAddress(options.url));
  ASSIGN_OR_RETURN(auto client, http::BlockingClient::Create(
                                    address.endpoint, {.head_timeout = std::chrono::seconds(30)}));
  if (!options.last) RETURN_IF_ERROR(AwaitSteps(client, address, options));
  ASSIGN_OR_RETURN(const Reply reply, AskTrace(client, address, options, options.steps));
  std::ofstream file(options.output, std::ios::binary);
  file << reply.json;
  file.close();
  if (!file) return Error(ErrorCode::kIo, "cannot write {}", options.output);
  fmt::print("{}: open it in ui.perfetto.dev or chrome://tracing\n", options.output);
  return OkStatus();
}

}  // namespace

void AddTrace(CLI::App& root, Command& chosen) {
  CLI::App* command =
      root.add_subcommand("trace", "Write a trace of a running server's steps to a file");
  auto options = std::make_shared<TraceOptions>();
  command->add_option("url", options->url, "http://host:port of the server")->capture_default_str();
  command->add_option("--api-key", options->api_key, "the operator's key")
      ->envname("HAYATE_ADMIN_API_KEY");
  command->add_option("--steps", options->steps, "so many steps")
      ->check(CLI::Range(1, kMaxSteps))
      ->capture_default_str();
  command->add_flag("--last", options->last, "the steps that were, instead of the next ones");
  command->add_option("--wait-seconds", options->wait_seconds, "for the next ones")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  command->add_option("--output,-o", options->output, "the file")->capture_default_str();
  command->callback([&chosen, options] { chosen = [options] { return WriteTrace(*options); }; });
}

}  // namespace hayate::app
