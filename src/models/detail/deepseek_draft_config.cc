#include "models/detail/deepseek_draft_config.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "models/detail/config_readers.h"

namespace hayate::models {
namespace {

constexpr int64_t kMaxBlockSize = 64;

std::string BlockPrefix(int32_t block) { return "mtp." + std::to_string(block) + "."; }

int32_t CountBlocks(const weights::Checkpoint& checkpoint) {
  int32_t count = 0;
  while (true) {
    const std::string prefix = BlockPrefix(count);
    const auto found = checkpoint.tensors().lower_bound(prefix);
    if (found == checkpoint.tensors().end() || !found->first.starts_with(prefix)) return count;
    ++count;
  }
}

Status ReadDspark(const weights::Metadata& metadata, const std::string& prefix,
                  const DeepseekTrunkConfig& config, DeepseekDraftConfig& draft) {
  ASSIGN_OR_RETURN(draft.block_size,
                   ReadBounded(metadata, prefix + "dspark_block_size", 1, kMaxBlockSize));
  ASSIGN_OR_RETURN(draft.markov_rank,
                   ReadBounded(metadata, prefix + "dspark_markov_rank", 1, kMaxWidth));
  ASSIGN_OR_RETURN(draft.noise_token, ReadBounded(metadata, prefix + "dspark_noise_token_id", 0,
                                                  config.vocab_size - 1));
  ASSIGN_OR_RETURN(draft.num_experts, ReadBounded(metadata, prefix + "dspark_n_routed_experts", 1,
                                                  kMaxWidth, config.num_experts));
  ASSIGN_OR_RETURN(draft.experts_per_token,
                   ReadBounded(metadata, prefix + "dspark_num_experts_per_tok", 1,
                               draft.num_experts, config.experts_per_token));
  RETURN_IF_ERROR(CheckTrunkRouter(draft.num_experts, draft.experts_per_token));
  const std::string key = prefix + "dspark_target_layer_ids";
  ASSIGN_OR_RETURN(const std::vector<int64_t> targets, metadata.GetIntArray(key));
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] < 0 || targets[i] >= config.num_layers ||
        (i > 0 && targets[i] <= targets[i - 1])) {
      return Error(ErrorCode::kDataLoss, "{}[{}] is {}; layers ascend and are below {}", key, i,
                   targets[i], config.num_layers);
    }
  }
  if (targets.empty()) return Error(ErrorCode::kDataLoss, "{} is empty", key);
  draft.targets.assign(targets.begin(), targets.end());
  return OkStatus();
}

}  // namespace

Result<DeepseekDraftConfig> FindDeepseekDrafts(const weights::Checkpoint& checkpoint,
                                               std::string_view prefix,
                                               const DeepseekTrunkConfig& config) {
  DeepseekDraftConfig draft = {.num_blocks = CountBlocks(checkpoint),
                               .num_experts = config.num_experts,
                               .experts_per_token = config.experts_per_token};
  if (draft.num_blocks == 0) return draft;
  if (checkpoint.Has("mtp.0.main_proj.weight")) {
    draft.kind = DraftKind::kDspark;
    RETURN_IF_ERROR(ReadDspark(checkpoint.metadata(), std::string(prefix), config, draft));
    return draft;
  }
  if (!checkpoint.Has("mtp.0.e_proj.weight")) {
    return Error(ErrorCode::kDataLoss,
                 "tensors 'mtp.0.…' have neither 'main_proj' (DSpark) nor 'e_proj' (MTP)");
  }
  draft.kind = DraftKind::kNextN;
  return draft;
}

Result<DeepseekDraftConfig> ReadDeclaredDrafts(const weights::Checkpoint& checkpoint,
                                               std::string_view prefix,
                                               const DeepseekTrunkConfig& config) {
  const std::string before(prefix);
  const weights::Metadata& metadata = checkpoint.metadata();
  ASSIGN_OR_RETURN(const std::vector<int64_t> ratios,
                   metadata.GetIntArray(before + "compress_ratios"));
  DeepseekDraftConfig draft = {
      .num_blocks = static_cast<int32_t>(ratios.size()) - config.num_layers,
      .num_experts = config.num_experts,
      .experts_per_token = config.experts_per_token};
  if (draft.num_blocks <= 0) return DeepseekDraftConfig{};
  if (metadata.Has(before + "dspark_block_size")) {
    draft.kind = DraftKind::kDspark;
    RETURN_IF_ERROR(ReadDspark(metadata, before, config, draft));
  } else if (draft.num_blocks == 1) {
    draft.kind = DraftKind::kNextN;
  } else {
    return DeepseekDraftConfig{};
  }
  return draft;
}

Result<DeepseekDraftConfig> ChooseDeepseekDrafts(const weights::Checkpoint& checkpoint,
                                                 std::string_view prefix,
                                                 const DeepseekTrunkConfig& config,
                                                 const LoadOptions& options) {
  if (options.draft != DraftKind::kNextN && options.draft != DraftKind::kDspark) {
    return DeepseekDraftConfig{};
  }
  ASSIGN_OR_RETURN(DeepseekDraftConfig draft, FindDeepseekDrafts(checkpoint, prefix, config));
  if (draft.kind == options.draft) return draft;
  const bool dspark = options.draft == DraftKind::kDspark;
  return Error(ErrorCode::kUnsupported, "{} drafts want tensors 'mtp.0.{}', which are not there",
               dspark ? "DSpark" : "MTP", dspark ? "main_proj" : "e_proj");
}

int64_t FeatureTap::width() const {
  const int64_t h = config_.hidden_size;
  switch (draft_.kind) {
    case DraftKind::kNextN:
      return ops::kHyperStreams * h;
    case DraftKind::kDspark:
      return static_cast<int64_t>(draft_.targets.size()) * h;
    default:
      return 0;
  }
}

bool FeatureTap::wants_last_output() const {
  const int32_t last = config_.num_layers - 1;
  return draft_.kind == DraftKind::kNextN ||
         (draft_.kind == DraftKind::kDspark && place_ == TapPlace::kOutput &&
          draft_.targets.back() == last);
}

void FeatureTap::Tap(Stream stream, int layer, const StreamRows& rows, float* features) const {
  if (features == nullptr) return;
  const int64_t h = config_.hidden_size;
  if (draft_.kind == DraftKind::kNextN && layer + 1 == config_.num_layers) {
    stream.device->Copy(stream, features, rows.streams.data,
                        static_cast<size_t>(rows.streams.num_bytes()));
  }
  if (draft_.kind != DraftKind::kDspark) return;
  const auto found = std::ranges::find(draft_.targets, layer);
  if (found == draft_.targets.end()) return;
  float* out = features + (found - draft_.targets.begin()) * h;
  ops::HyperMeans(stream, {reinterpret_cast<std::byte*>(out), DType::kF32, {rows.count(), h}},
                  width(), rows.streams);
}

}  // namespace hayate::models
