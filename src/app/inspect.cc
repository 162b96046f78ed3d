#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <utility>

#include "app/commands.h"
#include "app/default_model.h"
#include "app/tokenizer_loading.h"
#include "models/model_outline.h"
#include "models/tensor_list.h"
#include "weights/checkpoint.h"
#include "weights/describe.h"

namespace hayate::app {
namespace {

struct InspectOptions {
  std::string path;
  bool json = false;
};

constexpr uint64_t kDummySeed = 1;

// The checkpoint; of a folder that holds only config.json what its tensors would be, without bytes.
struct Inspected {
  weights::Checkpoint checkpoint;
  Status weights;  // why there are none
};

Result<Inspected> OpenForInspection(const std::string& path) {
  Result<weights::Checkpoint> whole = weights::Checkpoint::Open(path);
  if (whole.ok()) return Inspected{std::move(*whole), OkStatus()};
  if (whole.status().code() != ErrorCode::kNotFound) return whole.status();
  Result<weights::Checkpoint> config = weights::Checkpoint::OpenConfig(path);
  if (!config.ok()) return whole.status();
  ASSIGN_OR_RETURN(auto tensors, models::ListTensors(*config, DType::kBF16));
  RETURN_IF_ERROR(config->AddDummyTensors(std::move(tensors), kDummySeed));
  return Inspected{std::move(*config), whole.status()};
}

// Tokens of a cache that fit into 10⁹ bytes.
std::string DescribeCache(const models::CacheUse& use) {
  const auto bytes = [](int64_t count) { return static_cast<double>(count); };
  std::string text = fmt::format("{} a token", use.bytes_per_token);
  if (use.bytes_per_token > 0) {
    text += fmt::format(", {:.0f} tokens a GB", 1e9 / bytes(use.bytes_per_token));
  }
  if (use.full_attention_bytes_per_token != use.bytes_per_token && use.bytes_per_token > 0) {
    text += fmt::format(" ({:.1f} x those of every layer keeping every token)",
                        bytes(use.full_attention_bytes_per_token) / bytes(use.bytes_per_token));
  }
  if (use.bytes_per_sequence > 0) {
    text += fmt::format("; {:.2f} MB a sequence", bytes(use.bytes_per_sequence) / 1e6);
  }
  return text;
}

// What Hayate will do with the checkpoint, or why it cannot serve it, and what it takes to.
std::string Verdict(const Inspected& inspected) {
  const auto outline = models::ReadOutline(inspected.checkpoint);
  if (!outline.ok()) return "Hayate: cannot be served: " + outline.status().message() + "\n";
  std::string text;
  for (const models::CacheUse& use : outline->caches) {
    text += fmt::format("{:<15} {}\n", fmt::format("cache {}", Info(use.dtype).name),
                        DescribeCache(use));
  }
  text += "Hayate: ";
  const auto tokenizer = LoadTokenizer(inspected.checkpoint);
  if (!inspected.weights.ok()) {
    text += fmt::format("random weights alone (--load-format dummy): {}{}",
                        inspected.weights.message(), tokenizer.ok() ? "" : "; no tokenizer");
  } else if (!tokenizer.ok()) {
    text += "serves token ids only: " + tokenizer.status().message();
  } else {
    text += "serves text";
  }
  return text + fmt::format("; {} layers of width {}, vocabulary of {}, context of {} tokens\n",
                            outline->num_layers, outline->hidden_size, outline->vocab_size,
                            outline->trained_context);
}

Status Inspect(const InspectOptions& options) {
  std::string path = options.path;
  if (path.empty()) {
    ASSIGN_OR_RETURN(path, FindOrFetchDefaultModel());
  }
  ASSIGN_OR_RETURN(const Inspected inspected, OpenForInspection(path));
  ASSIGN_OR_RETURN(const weights::CheckpointSummary summary,
                   weights::Describe(inspected.checkpoint));
  if (options.json) {
    fmt::print("{}\n", weights::ToJson(summary, inspected.checkpoint));
  } else {
    fmt::print("{}{}", weights::ToText(summary), Verdict(inspected));
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
