#pragma once
// From a checkpoint to a Model.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/status.h"
#include "comm/expert_placement.h"
#include "models/config.h"
#include "models/model.h"
#include "ops/latent_attention/latent_attention.h"
#include "ops/matmul/matmul.h"
#include "tensor/device.h"
#include "weights/checkpoint.h"

namespace hayate::models {

// Who guesses tokens ahead: they differ in where their weights lie and in what they want to know of
// the target model.
enum class DraftKind : uint8_t {
  kNone,
  kNextN,       // the MTP layers of the target's own checkpoint
  kDspark,      // the DSpark stages of the target's own checkpoint
  kStandalone,  // a model of its own with the target's vocabulary; wants no features
  kEagle3,  // a layer with a checkpoint of its own; wants what enters some of the target's layers
};

// Sliding windows of a reused prefix, of models whose windows are small beside the rest.
enum class WindowReuse : uint8_t {
  kStored,           // kept with the prefix
  kReplayed,         // the last W tokens are computed again, without what their windows held:
                     // an approximation, as the vendor serves DeepSeek V4.1
  kReplayedExactly,  // so many tokens that nothing differs: layers × (W − 1)
};

struct LoadOptions {
  // Of the attention group: the ranks that split heads, dense layers and vocabulary, and the
  // experts too unless `experts` is given.
  int rank = 0;
  int num_ranks = 1;
  // Where rows travel to their experts: how each layer's are placed on all ranks of the replica
  // [layers of the model], and which of the ranks this is.
  std::span<const comm::ExpertPlacement> experts;
  int expert_rank = 0;
  Device* device = nullptr;  // of this rank; must outlive the model
  ops::MatmulPrecision precision = ops::MatmulPrecision::kFast;
  DType kv_dtype = DType::kF16;  // kF32, kF16, kBF16, kI8; latent caches kF32, kBF16, kF8E4M3
  // Latent attention: how rows of several tokens are computed. Materialised is quicker for long
  // chunks, but whether a token is computed so depends on how its prompt was chunked.
  ops::LatentForm latent_form = ops::LatentForm::kAbsorbed;
  // kFixed: neither products nor attention sum in an order that depends on the batch (CUDA).
  ops::SumOrder sum_order = ops::SumOrder::kFastest;
  int32_t page_tokens = 32;  // [1, 1024]
  int32_t max_context = 0;   // 0: what the checkpoint promises
  // Rows may end in so many drafts, any of which may be refused: the next row of their sequence
  // begins anew behind the last token that stands. States and rings must be able to take them back.
  int32_t max_drafts = 0;
  WindowReuse window_reuse = WindowReuse::kStored;  // else DeepSeek V4.1 alone
  // Whose features (Model::feature_width) a forward pass leaves.
  DraftKind draft = DraftKind::kNone;
  // kEagle3: the head's, which says which layers it looks at. Outlives the loading.
  const weights::Checkpoint* draft_checkpoint = nullptr;
  // Called on this rank's thread after each layer: bytes of the checkpoint read so far and in all,
  // both for this rank's share. May be empty.
  std::function<void(int64_t done, int64_t total)> progress;
};

// Reads and prepares this rank's shard. Call it on the rank's own thread, on all ranks at once:
// packing then runs in parallel and memory is first touched where it is used. The embedding table
// stays in the checkpoint's mapped file, so the checkpoint must outlive the model. kUnsupported for
// an architecture or a feature that has no implementation, kDataLoss for tensors that do not fit
// the config, kInvalidArgument for options; messages name the field or the tensor.
Result<std::unique_ptr<Model>> LoadModel(const weights::Checkpoint& checkpoint,
                                         const LoadOptions& options);

}  // namespace hayate::models
