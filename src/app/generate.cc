#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <random>

#include "app/commands.h"
#include "app/local_answer.h"

namespace hayate::app {
namespace {

struct GenerateOptions {
  ModelOptions model;
  std::string prompt;
  bool raw = false;
  SamplingParams sampling{.temperature = 0.0f, .max_new_tokens = 256};
  int64_t seed = -1;
};

Status Generate(const GenerateOptions& options) {
  ASSIGN_OR_RETURN(auto local, LocalAnswer::Create(options.model));
  SamplingParams sampling = options.sampling;
  sampling.seed = options.seed >= 0 ? static_cast<uint64_t>(options.seed) : std::random_device{}();
  std::string prompt = options.prompt;
  if (!options.raw) {
    ASSIGN_OR_RETURN(prompt, local->RenderChat({{"user", options.prompt}}));
  }
  const auto print = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  ASSIGN_OR_RETURN(const AnswerStats stats, local->Answer(prompt, sampling, print));
  fmt::print("\n");
  fmt::print(stderr, "{} prompt tokens, {} generated, {:.1f} tokens/s\n", stats.prompt_tokens,
             stats.completion_tokens, stats.tokens_per_s);
  return OkStatus();
}

}  // namespace

void AddGenerate(CLI::App& root, Command& chosen) {
  CLI::App* command = root.add_subcommand("generate", "Answer one prompt, without a server");
  auto options = std::make_shared<GenerateOptions>();
  command->add_option("prompt", options->prompt, "the user's message")->required();
  command->add_flag("--raw", options->raw, "continue the text as it is, without the chat template");
  command->add_option("--max-tokens,-n", options->sampling.max_new_tokens, "longest answer, tokens")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--temperature", options->sampling.temperature, "0: greedy")
      ->check(NumberBetween(0.0, 100.0))
      ->capture_default_str();
  command->add_option("--top-p", options->sampling.top_p)->check(NumberBetween(0.0001, 1.0));
  command->add_option("--top-k", options->sampling.top_k)->check(CLI::NonNegativeNumber);
  command->add_option("--seed", options->seed, "same seed, same answer");
  AddModelFlags(*command, options->model);
  command->callback([&chosen, options] { chosen = [options] { return Generate(*options); }; });
}

}  // namespace hayate::app
