// hayate chat: a conversation in the terminal, or line by line through a pipe.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "app/chat_partner.h"
#include "app/commands.h"
#include "app/default_model.h"
#include "app/signals.h"
#include "base/thread.h"

namespace hayate::app {
namespace {

// What shells expect of a process that a signal ended.
constexpr int kSignalExit = 128;

struct ChatOptions {
  std::string url;
  std::string api_key;
  std::string system;
  ModelOptions model;
  ChatSampling sampling;
};

// Ctrl-C stops the answer under way; without one, or pressed again, it ends the process.
class AnswerInterrupt {
 public:
  AnswerInterrupt() : thread_("signals", [this] { Watch(); }) {}
  ~AnswerInterrupt() {
    closing_ = true;
    // Wakes the watcher: every thread blocks the signal, so it alone takes it.
    ::kill(::getpid(), SIGTERM);
    thread_.Join();
  }

  // From here to EndAnswer() the first SIGINT calls `partner.Stop()`, which has returned when
  // EndAnswer() does: the partner may end before this object.
  void BeginAnswer(ChatPartner& partner) { Answer(&partner); }
  void EndAnswer() { Answer(nullptr); }

 private:
  void Answer(ChatPartner* partner) {
    const std::lock_guard lock(mutex_);
    answering_ = partner;
  }

  void Watch() {
    while (true) {
      const std::optional<int> signal = signals_.WaitFor(std::chrono::hours(1));
      if (closing_) return;
      if (signal && !StopAnswer(*signal)) {
        std::fputs("\n", stdout);
        std::fflush(stdout);
        std::_Exit(kSignalExit + *signal);
      }
    }
  }

  // False: the signal is meant for the process.
  bool StopAnswer(int signal) {
    const std::lock_guard lock(mutex_);
    if (signal != SIGINT || answering_ == nullptr) return false;
    std::exchange(answering_, nullptr)->Stop();
    return true;
  }

  StopSignals signals_;
  std::mutex mutex_;
  ChatPartner* answering_ = nullptr;  // under mutex_
  std::atomic<bool> closing_ = false;
  NamedThread thread_;
};

struct Terminal {
  bool interactive = ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0;
  bool shows_stats = ::isatty(STDERR_FILENO) != 0;
};

void PrintText(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// The answer is printed and kept, also where it was stopped; a failed one is forgotten together
// with its question.
Status Converse(ChatPartner& partner, AnswerInterrupt& interrupt, const Terminal& terminal,
                const std::string& question, Conversation& conversation) {
  conversation.push_back({"user", question});
  std::string answer;
  interrupt.BeginAnswer(partner);
  const auto stats = partner.Reply(conversation, [&](std::string_view text) {
    answer += text;
    PrintText(text);
    if (std::ferror(stdout) != 0) partner.Stop();  // nobody reads
  });
  interrupt.EndAnswer();
  PrintText("\n");
  const bool stopped = !stats.ok() && stats.status().code() == ErrorCode::kCancelled;
  if (!stats.ok() && !stopped) {
    conversation.pop_back();
    return stats.status();
  }
  conversation.push_back({"assistant", answer});
  if (!terminal.shows_stats) return OkStatus();
  if (stopped) {
    fmt::print(stderr, "[stopped]\n");
  } else {
    fmt::print(stderr, "[{} prompt tokens, {} answered, {:.1f} tokens/s]\n", stats->prompt_tokens,
               stats->completion_tokens, stats->tokens_per_s);
  }
  return OkStatus();
}

// Until /exit or the end of the input. At a terminal an error ends its answer only.
Status Talk(ChatPartner& partner, AnswerInterrupt& interrupt, const std::string& system) {
  const Terminal terminal;
  Conversation opening;
  if (!system.empty()) opening.push_back({"system", system});
  Conversation conversation = opening;
  if (terminal.interactive) {
    PrintText("/clear forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer.\n");
  }
  std::string line;
  while (true) {
    if (terminal.interactive) PrintText("> ");
    if (!std::getline(std::cin, line)) break;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    if (line == "/exit" || line == "/quit") return OkStatus();
    if (line == "/clear") {
      conversation = opening;
      continue;
    }
    const Status status = Converse(partner, interrupt, terminal, line, conversation);
    if (std::ferror(stdout) != 0) return OkStatus();  // main reports it
    if (status.ok()) continue;
    if (!terminal.interactive) return status;
    fmt::print(stderr, "hayate: {}\n", status.message());
  }
  if (terminal.interactive) PrintText("\n");
  return OkStatus();
}

Status Chat(ChatOptions options) {
  // A download is interrupted as any other program, so it comes before signals are held back.
  if (options.url.empty() && options.model.model_path.empty()) {
    ASSIGN_OR_RETURN(options.model.model_path, FindOrFetchDefaultModel());
  }
  AnswerInterrupt interrupt;
  std::unique_ptr<ChatPartner> partner;
  if (options.url.empty()) {
    ASSIGN_OR_RETURN(partner, MakeLocalPartner(options.model, options.sampling));
  } else {
    ASSIGN_OR_RETURN(ServerAddress address, ParseServerAddress(options.url));
    ASSIGN_OR_RETURN(partner, MakeRemotePartner({.address = std::move(address),
                                                 .api_key = options.api_key,
                                                 .model = options.model.model_path,
                                                 .sampling = options.sampling}));
  }
  return Talk(*partner, interrupt, options.system);
}

}  // namespace

void AddChat(CLI::App& root, Command& chosen) {
  CLI::App* command =
      root.add_subcommand("chat", "Talk to a model in the terminal, here or on a server");
  auto options = std::make_shared<ChatOptions>();
  command->add_option("--url", options->url,
                      "http://host:port of a server; --model then names one of its models");
  command->add_option("--api-key", options->api_key, "sent to the server as a bearer token")
      ->envname("HAYATE_API_KEY");
  command->add_option("--system", options->system, "the system message");
  command->add_option("--max-tokens,-n", options->sampling.max_tokens, "longest answer, tokens")
      ->check(CLI::PositiveNumber);
  command->add_option("--temperature", options->sampling.temperature, "0: greedy")
      ->check(NumberBetween(0.0, 100.0));
  command->add_option("--top-p", options->sampling.top_p)->check(NumberBetween(0.0001, 1.0));
  command->add_option("--seed", options->sampling.seed, "same seed, same answer")
      ->check(CLI::NonNegativeNumber);
  AddModelFlags(*command, options->model);
  command->callback([&chosen, options] { chosen = [options] { return Chat(*options); }; });
}

}  // namespace hayate::app
