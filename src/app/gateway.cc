// hayate gateway: many workers behind one address.

#include "gateway/gateway.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "app/commands.h"
#include "app/config_file.h"
#include "app/gateway_options.h"
#include "app/signals.h"
#include "base/log.h"
#include "gateway/discovery.h"

namespace hayate::app {
namespace {

constexpr std::chrono::milliseconds kSignalPoll{500};
// A body beyond it flows through instead of being held for a retry.
constexpr size_t kHeldBodyBytes = 1 << 20;

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

// Every client and every worker connection is a descriptor.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Set for the process that takes over a listening socket, by the one that gives it up.
constexpr const char* kListenFdVariable = "HAYATE_LISTEN_FD";
constexpr const char* kPredecessorVariable = "HAYATE_PREDECESSOR";

Result<std::unique_ptr<http::Server>> MakeServer(const GatewayFlags& flags) {
  http::ServerOptions options;
  if (const char* fd = std::getenv(kListenFdVariable); fd != nullptr) {
    options.inherited_fd = std::atoi(fd);
  }
  ASSIGN_OR_RETURN(options.tls, TlsOfFlags(flags));
  options.listen = {flags.host, static_cast<uint16_t>(flags.port)};
  options.num_threads = flags.threads;
  options.max_connections = flags.max_connections;
  options.max_body_bytes = static_cast<size_t>(flags.max_payload_size);
  options.stream_body_bytes = kHeldBodyBytes;
  options.max_header_bytes = 64 << 10;
  options.max_pending_bytes = 64 << 20;  // the proxy holds workers back far below it
  options.write_timeout = std::chrono::minutes(2);
  options.render_error = gateway::Gateway::RenderError;
  return http::Server::Create(std::move(options));
}

Result<std::unique_ptr<http::Server>> StartMetricsServer(const GatewayFlags& flags,
                                                         gateway::Gateway& gateway) {
  if (flags.prometheus_port == 0) return std::unique_ptr<http::Server>();
  http::ServerOptions options;
  options.listen = {flags.prometheus_host, static_cast<uint16_t>(flags.prometheus_port)};
  options.max_connections = 64;
  ASSIGN_OR_RETURN(auto server, http::Server::Create(std::move(options)));
  RETURN_IF_ERROR(server->Start([&gateway](http::Request& request, http::ResponseWriter writer) {
    gateway.HandleMetrics(request, std::move(writer));
  }));
  return server;
}

// Keys and the workers of the flags, as the configuration file has them now. What cannot change
// under way (addresses, policies) needs SIGUSR2.
using Reread = std::function<Result<GatewayFlags>()>;

void Reload(const Reread& reread, gateway::Gateway& gateway) {
  const auto apply = [&]() -> Status {
    ASSIGN_OR_RETURN(const GatewayFlags flags, reread());
    ASSIGN_OR_RETURN(auto keys, KeysOfFlags(flags));
    ASSIGN_OR_RETURN(const auto workers, WorkersOfFlags(flags));
    gateway.SetKeys(std::move(keys));
    gateway.SetWorkers("flags", workers);
    return OkStatus();
  };
  if (const Status status = apply(); status.ok()) {
    LOG_INFO("SIGHUP: keys and workers are read again");
  } else {
    LOG_WARN("SIGHUP: {}; everything stays as it was", status.message());
  }
}

// Starts this binary again with this command line, on this very socket: no connection is refused.
// The successor ends this process when it is ready; if it never is, this one goes on.
void StartSuccessor(int listen_fd) {
  std::ifstream cmdline("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(cmdline, argument, '\0');) arguments.push_back(argument);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::vector<std::string> variables = {fmt::format("{}={}", kListenFdVariable, listen_fd),
                                        fmt::format("{}={}", kPredecessorVariable, ::getpid())};
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with(kListenFdVariable) && !text.starts_with(kPredecessorVariable)) {
      environment.push_back(*entry);
    }
  }
  environment.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, listen_fd, listen_fd);  // clears close-on-exec
  pid_t child = 0;
  const int error =
      posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    LOG_WARN("SIGUSR2: no successor: {}", std::strerror(error));
  } else {
    LOG_INFO("SIGUSR2: process {} takes over when it is ready", child);
  }
}

void ReleasePredecessor() {
  const char* predecessor = std::getenv(kPredecessorVariable);
  if (predecessor == nullptr || std::atoi(predecessor) != ::getppid()) return;
  LOG_INFO("ready; process {} may go", predecessor);
  ::kill(::getppid(), SIGTERM);
}

Status RunGateway(const GatewayFlags& flags, const Reread& reread) {
  RETURN_IF_ERROR(SetLogLevel(flags.log_level));
  for (const std::string& line : flags.without_effect) LOG_WARN("without effect: {}", line);
  RaiseDescriptorLimit();
  StopSignals signals({SIGHUP, SIGUSR2});
  ASSIGN_OR_RETURN(gateway::GatewayOptions options, ResolveGatewayOptions(flags));
  options.router.health.assume_up = std::getenv(kPredecessorVariable) != nullptr;
  ASSIGN_OR_RETURN(const auto workers, WorkersOfFlags(flags));
  const SteadyClock clock;
  obs::Registry registry;
  ASSIGN_OR_RETURN(auto server, MakeServer(flags));
  std::random_device entropy;
  ASSIGN_OR_RETURN(auto gateway, gateway::Gateway::Create(std::move(options), registry, clock,
                                                          server->threads(), entropy()));
  ASSIGN_OR_RETURN(gateway::DiscoveryOptions discovery_options, DiscoveryOfFlags(flags));
  gateway->SetWorkers("flags", workers);
  std::optional<gateway::Discovery> discovery;
  discovery.emplace(std::move(discovery_options),
                    [&gateway](std::string_view source, const auto& found) {
                      gateway->SetWorkers(source, found);
                    });
  ASSIGN_OR_RETURN(auto metrics_server, StartMetricsServer(flags, *gateway));
  RETURN_IF_ERROR(server->Start([&gateway](http::Request& request, http::ResponseWriter writer) {
    gateway->Handle(request, std::move(writer));
  }));
  LOG_INFO("gateway on http://{}:{} before {} workers, policy {}", flags.host, server->port(),
           workers.size(), flags.policy.name);

  ReleasePredecessor();

  std::optional<int> signal;
  while (!signal || *signal == SIGHUP || *signal == SIGUSR2) {
    signal = signals.WaitFor(kSignalPoll);
    if (signal == SIGHUP) Reload(reread, *gateway);
    if (signal == SIGUSR2) StartSuccessor(server->listen_fd());
  }
  LOG_INFO("{}: not ready from here on; {} requests under way",
           *signal == SIGINT ? "SIGINT" : "SIGTERM", gateway->num_running());
  gateway->BeginDraining();
  // Who balances over several gateways sees the readiness change before this port closes. A second
  // signal ends the wait.
  (void)signals.WaitFor(Milliseconds(flags.drain_settle_secs));
  signals.RestoreDefaults();
  const Status drained = server->Shutdown(Milliseconds(flags.shutdown_grace_period_secs));
  if (!drained.ok()) LOG_WARN("{}", drained.message());
  if (metrics_server != nullptr) (void)metrics_server->Shutdown(std::chrono::milliseconds(0));
  discovery.reset();
  gateway.reset();
  LOG_INFO("stopped");
  return OkStatus();
}

}  // namespace

namespace {

// The command line of this process once more, over the file as it is now.
Result<GatewayFlags> RereadFlags(const std::string& config_path) {
  std::ifstream cmdline("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(cmdline, argument, '\0');) arguments.push_back(argument);
  CLI::App root;
  root.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  CLI::App* command = root.add_subcommand("gateway");
  GatewayFlags flags;
  std::string ignored;
  AddGatewayFlags(*command, flags);
  command->add_option("--config", ignored)->configurable(false);
  if (!arguments.empty()) arguments.erase(arguments.begin());
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  try {
    root.parse(arguments);
    if (!config_path.empty()) ApplyConfigFile(*command, config_path);
  } catch (const CLI::ParseError& error) {
    return Status(ErrorCode::kInvalidArgument, error.what());
  }
  return flags;
}

}  // namespace

void AddGateway(CLI::App& root, Command& chosen) {
  CLI::App* command = root.add_subcommand("gateway", "Put many workers behind one address");
  auto flags = std::make_shared<GatewayFlags>();
  AddGatewayFlags(*command, *flags);
  auto config_path = std::make_shared<std::string>();
  command->add_option("--config", *config_path, "TOML file with these options; flags win over it")
      ->configurable(false);
  command->callback([&chosen, command, flags, config_path] {
    if (!config_path->empty()) ApplyConfigFile(*command, *config_path);
    chosen = [flags, config_path] {
      return RunGateway(*flags, [config_path] { return RereadFlags(*config_path); });
    };
  });
}

}  // namespace hayate::app
