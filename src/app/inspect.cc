#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "app/commands.h"
#include "app/engine_stack.h"
#include "app/tokenizer_loading.h"
#include "models/config.h"
#include "weights/describe.h"

namespace hayate::app {
namespace {

struct InspectOptions {
  std::string path;
  bool json = false;
};

// What Hayate will do with the checkpoint, or why it cannot serve it.
std::string Verdict(const weights::Checkpoint& checkpoint) {
  const auto config = models::ReadModelConfig(checkpoint);
  if (!config.ok()) return "cannot be served: " + config.status().message();
  const auto tokenizer = LoadTokenizer(checkpoint);
  if (!tokenizer.ok()) return "serves token ids only: " + tokenizer.status().message();
  return fmt::format("serves text; {} layers, vocabulary of {}, context of {} tokens",
                     config->num_layers, config->vocab_size, config->trained_context);
}

Status Inspect(const InspectOptions& options) {
  ModelOptions model;
  model.model_path = options.path;
  ASSIGN_OR_RETURN(const auto checkpoint, OpenCheckpoint(model));
  ASSIGN_OR_RETURN(const weights::CheckpointSummary summary, weights::Describe(*checkpoint));
  if (options.json) {
    fmt::print("{}\n", weights::ToJson(summary, *checkpoint));
  } else {
    fmt::print("{}\nHayate: {}\n", weights::ToText(summary), Verdict(*checkpoint));
  }
  return OkStatus();
}

}  // namespace

void AddInspect(CLI::App& root, Command& chosen) {
  CLI::App* command = root.add_subcommand("inspect", "Print what a model file holds");
  auto options = std::make_shared<InspectOptions>();
  command->add_option("path", options->path,
                      "model file or directory; the default model without it");
  command->add_flag("--json", options->json, "one JSON object, with every tensor");
  command->callback([&chosen, options] { chosen = [options] { return Inspect(*options); }; });
}

}  // namespace hayate::app
