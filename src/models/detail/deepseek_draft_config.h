#pragma once
// The draft blocks of a DeepSeek V4 or V4.1 checkpoint: what they are, and what they want to know
// of each token that the trunk computed.

#include <cstdint>
#include <vector>

#include "models/detail/deepseek_streams.h"
#include "models/detail/deepseek_trunk_config.h"
#include "models/registry.h"
#include "weights/checkpoint.h"

namespace hayate::models {

struct DeepseekDraftConfig {
  DraftKind kind = DraftKind::kNone;
  int32_t num_blocks = 0;  // "mtp.0" …

  // DSpark.
  int32_t block_size = 0;  // guesses per pass
  int32_t markov_rank = 0;
  int32_t noise_token = 0;       // stands for the tokens to be guessed
  std::vector<int32_t> targets;  // layers whose streams are the context

  int32_t num_experts = 0;
  int32_t experts_per_token = 0;
};

// What the tensors "mtp.<i>.…" are: the config's own count of draft layers is no help, for
// checkpoints of three stages call it 1. kNone without such tensors; kDataLoss for contradictions;
// `prefix` as ReadTrunkConfig.
Result<DeepseekDraftConfig> FindDeepseekDrafts(const weights::Checkpoint& checkpoint,
                                               std::string_view prefix,
                                               const DeepseekTrunkConfig& config);

// What a config without tensors says of its draft blocks: one for every compress_ratios entry
// behind the trunk's, DSpark where it has fields of it. Errors as FindDeepseekDrafts.
Result<DeepseekDraftConfig> ReadDeclaredDrafts(const weights::Checkpoint& checkpoint,
                                               std::string_view prefix,
                                               const DeepseekTrunkConfig& config);

// FindDeepseekDrafts for the drafter that the options ask for: kNone where they ask for none or for
// a model of its own. kUnsupported where the checkpoint has another kind or none.
Result<DeepseekDraftConfig> ChooseDeepseekDrafts(const weights::Checkpoint& checkpoint,
                                                 std::string_view prefix,
                                                 const DeepseekTrunkConfig& config,
                                                 const LoadOptions& options);

// Where DSpark looks at a layer.
enum class TapPlace : uint8_t {
  kOutput,  // V4
  kInput,   // V4.1
};

// Copies what a drafter wants out of the trunk's streams: all of them after the last layer (MTP),
// or their means at some layers (DSpark).
class FeatureTap {
 public:
  FeatureTap(const DeepseekTrunkConfig& config, const DeepseekDraftConfig& draft, TapPlace place)
      : config_(config), draft_(draft), place_(place) {}

  int64_t width() const;  // F
  // Whether features come from behind the last layer, so that it has to compute every token.
  bool wants_last_output() const;
  // Called for every layer with features [T, F], or null.
  void AtInput(Stream stream, int layer, const StreamRows& rows, float* features) const {
    if (place_ == TapPlace::kInput) Tap(stream, layer, rows, features);
  }
  void AtOutput(Stream stream, int layer, const StreamRows& rows, float* features) const {
    if (place_ == TapPlace::kOutput) Tap(stream, layer, rows, features);
  }

 private:
  void Tap(Stream stream, int layer, const StreamRows& rows, float* features) const;

  const DeepseekTrunkConfig& config_;
  const DeepseekDraftConfig& draft_;
  const TapPlace place_;
};

}  // namespace hayate::models
