// hayate: one binary, one subcommand a job.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "app/commands.h"
#include "base/check.h"
#include "base/log.h"

namespace {

// Exit codes: 0 done, 1 the command failed, 2 the command line is wrong.
constexpr int kFailed = 1;
constexpr int kUsage = 2;

int ReportUsage(const CLI::App& root, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return root.exit(error);  // --help
  fmt::print(stderr, "hayate: {}\n", error.what());
  const auto chosen = root.get_subcommands();
  const CLI::App* command = &root;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    for (const std::string& flag : command->remaining(true)) {
      const std::string hint = hayate::app::SuggestFlag(*command, flag);
      if (!hint.empty()) fmt::print(stderr, "{}: {}\n", flag, hint);
    }
  }
  std::string name = "hayate";
  for (const CLI::App* app : chosen) name += " " + app->get_name();
  fmt::print(stderr, "See {} --help\n", name);
  return kUsage;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace hayate::app;
  CLI::App root("Hayate serves large language models.", "hayate");
  root.require_subcommand(1);
  root.get_formatter()->column_width(36);
  // A wrapper script's flag can be overridden by one that follows it.
  root.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  Command chosen;
  AddServe(root, chosen);
  AddChat(root, chosen);
  AddGenerate(root, chosen);
  AddGateway(root, chosen);
  AddBench(root, chosen);
  AddInspect(root, chosen);
  AddTrace(root, chosen);
  AddVersion(root, chosen);
  try {
    root.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ReportUsage(root, error);
  }
  // Logs go to stderr: a command's answer on stdout may be JSON.
  CHECK(hayate::SetLogLevel("info").ok());
  const hayate::Status status = chosen();
  if (!status.ok()) {
    fmt::print(stderr, "hayate: {}\n", status.message());
    return kFailed;
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    fmt::print(stderr, "hayate: cannot write to the standard output\n");
    return kFailed;
  }
  return 0;
}
