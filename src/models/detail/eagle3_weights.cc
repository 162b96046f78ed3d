#include "models/detail/eagle3_weights.h"

#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"
#include "models/detail/tensor_reader.h"

namespace hayate::models {
namespace {

using weights::Checkpoint;

// Rows of a head go in whole tiles of the matrix product; columns of plain types likewise.
constexpr int64_t kTileRows = 16;
constexpr int64_t kMinColumnUnit = 32;

class Loader {
 public:
  Loader(const Checkpoint& head, const Eagle3Config& config, const LoadOptions& options,
         const ModelFacts& target)
      : head_(head),
        config_(config.layer),
        draft_vocab_(config.draft_vocab_size),
        options_(options),
        target_(target),
        reader_(head, options, config.layer.fp8_block) {}

  Result<Eagle3Weights> Load() {
    // Everything but the two ends may stand under "model." too.
    for (const char* name : {"", "model."}) {
      if (head_.Has(std::string(name) + "fc.weight")) prefix_ = name;
    }
    layer_ =
        prefix_ + (head_.Has(prefix_ + "layers.0.hidden_norm.weight") ? "layers.0." : "midlayer.");
    Eagle3Weights weights;
    RETURN_IF_ERROR(PlanShard(weights));
    RETURN_IF_ERROR(LoadFc(weights));
    RETURN_IF_ERROR(LoadLayer(weights));
    RETURN_IF_ERROR(LoadEnds(weights));
    return weights;
  }

 private:
  int64_t hidden() const { return config_.hidden_size; }
  Range AllHidden() const { return {0, hidden()}; }

  Status PlanShard(Eagle3Weights& weights) {
    ASSIGN_OR_RETURN(const ConstTensorView output,
                     head_.Tensor(layer_ + "self_attn.o_proj.weight"));
    ASSIGN_OR_RETURN(const ConstTensorView down, head_.Tensor(layer_ + "mlp.down_proj.weight"));
    const int64_t d = config_.head_dim;
    weights.heads_unit = std::lcm(ColumnUnit(output.dtype), d) / d;
    weights.shape = {.heads = SplitHeads(config_.num_heads, config_.num_kv_heads,
                                         weights.heads_unit, options_.rank, options_.num_ranks),
                     .head_dim = config_.head_dim,
                     .group_size = config_.group_size(),
                     .rotary_dim = config_.rope.rotary_dim,
                     .pairing = config_.rope.pairing,
                     .norm_eps = config_.norm_eps};
    ffn_ = SplitUnits(config_.ffn_size, std::max(ColumnUnit(down.dtype), kMinColumnUnit),
                      options_.rank, options_.num_ranks);
    weights.fc_rows = SplitUnits(hidden(), kTileRows, options_.rank, options_.num_ranks);
    weights.vocab = SplitUnits(draft_vocab_, kTileRows, options_.rank, options_.num_ranks);
    return OkStatus();
  }

  Status LoadFc(Eagle3Weights& weights) {
    ASSIGN_OR_RETURN(const ConstTensorView fc, head_.Tensor(prefix_ + "fc.weight"));
    const int64_t width = target_.hidden_size, k = fc.shape.rank() == 2 ? fc.shape[1] : 0;
    if (k == 0 || k % width != 0) {
      return Error(ErrorCode::kDataLoss, "{}fc.weight joins states {} wide; the model's are {}",
                   prefix_, k, width);
    }
    weights.num_states = static_cast<int32_t>(k / width);
    ASSIGN_OR_RETURN(weights.fc.weights,
                     reader_.Pack({{prefix_ + "fc", hidden(), k, weights.fc_rows, {0, k}}}));
    return OkStatus();
  }

  struct Piece {
    const char* name;
    int64_t n;   // rows of the whole matrix
    Range rows;  // of this rank
  };
  // Pieces of the layer with `k` columns, of which this rank takes `columns`.
  Result<Linear> LayerLinear(const std::vector<Piece>& pieces, int64_t k, Range columns,
                             bool biased) {
    std::vector<TensorReader::Matrix> matrices;
    std::vector<TensorReader::VectorPart> biases;
    for (const Piece& piece : pieces) {
      matrices.push_back({layer_ + piece.name, piece.n, k, piece.rows, columns});
      if (!biased || piece.rows.size() == 0 || columns.size() == 0) continue;
      biases.push_back({layer_ + piece.name + ".bias", piece.n, piece.rows});
    }
    Linear linear;
    ASSIGN_OR_RETURN(linear.weights, reader_.Pack(matrices));
    ASSIGN_OR_RETURN(linear.bias, reader_.Vectors(biases));
    return linear;
  }

  Status LoadLayer(Eagle3Weights& weights) {
    const int64_t h = hidden(), d = config_.head_dim;
    const auto heads = [&](Range range) { return Range{range.begin * d, range.end * d}; };
    const Range q = heads(weights.shape.heads.query), kv = heads(weights.shape.heads.kv);
    const int64_t q_rows = config_.num_heads * d, kv_rows = config_.num_kv_heads * d;
    const bool first = options_.rank == 0;  // a bias after a sum over ranks is added once
    ASSIGN_OR_RETURN(weights.token_norm, reader_.Vector(layer_ + "input_layernorm.weight", h));
    ASSIGN_OR_RETURN(weights.state_norm, reader_.Vector(layer_ + "hidden_norm.weight", h));
    ASSIGN_OR_RETURN(weights.attention.qkv, LayerLinear({{"self_attn.q_proj", q_rows, q},
                                                         {"self_attn.k_proj", kv_rows, kv},
                                                         {"self_attn.v_proj", kv_rows, kv}},
                                                        2 * h, {0, 2 * h}, config_.qkv_bias));
    ASSIGN_OR_RETURN(weights.attention.output,
                     LayerLinear({{"self_attn.o_proj", h, AllHidden()}}, q_rows, q,
                                 config_.output_bias && first));
    if (reader_.Has(layer_ + "self_attn.q_norm.weight")) {
      ASSIGN_OR_RETURN(weights.attention.q_norm,
                       reader_.Vector(layer_ + "self_attn.q_norm.weight", d));
      ASSIGN_OR_RETURN(weights.attention.k_norm,
                       reader_.Vector(layer_ + "self_attn.k_norm.weight", d));
    }
    ASSIGN_OR_RETURN(weights.mlp_norm,
                     reader_.Vector(layer_ + "post_attention_layernorm.weight", h));
    ASSIGN_OR_RETURN(weights.mlp.gate_up, LayerLinear({{"mlp.gate_proj", config_.ffn_size, ffn_},
                                                       {"mlp.up_proj", config_.ffn_size, ffn_}},
                                                      h, AllHidden(), config_.mlp_bias));
    ASSIGN_OR_RETURN(weights.mlp.down,
                     LayerLinear({{"mlp.down_proj", h, AllHidden()}}, config_.ffn_size, ffn_,
                                 config_.mlp_bias && first));
    return OkStatus();
  }

  Status LoadEnds(Eagle3Weights& weights) {
    const int64_t h = hidden();
    ASSIGN_OR_RETURN(weights.final_norm, reader_.Vector(prefix_ + "norm.weight", h));
    ASSIGN_OR_RETURN(weights.head.weights,
                     reader_.Pack({{"lm_head", draft_vocab_, h, weights.vocab, {0, h}}}));
    if (h != target_.hidden_size) {
      ASSIGN_OR_RETURN(const ConstTensorView table,
                       reader_.Tensor(prefix_ + "embed_tokens.weight", {target_.vocab_size, h}));
      ASSIGN_OR_RETURN(weights.embedding, PlaceTable(*options_.device, table));
    }
    return LoadTargetIds(weights);
  }

  // d2t holds what is added to an id of the head's vocabulary.
  Status LoadTargetIds(Eagle3Weights& weights) {
    if (!reader_.Has("d2t") && draft_vocab_ == target_.vocab_size) return OkStatus();
    ASSIGN_OR_RETURN(const ConstTensorView offsets, head_.Tensor("d2t", {draft_vocab_}));
    if (offsets.dtype != DType::kI64) {
      return Error(ErrorCode::kDataLoss, "tensor 'd2t' is {}, must be I64",
                   Info(offsets.dtype).name);
    }
    std::vector<char> taken(static_cast<size_t>(target_.vocab_size));
    for (int64_t id = 0; id < draft_vocab_; ++id) {
      int64_t offset = 0;
      std::memcpy(&offset, offsets.data + id * static_cast<int64_t>(sizeof(offset)),
                  sizeof(offset));
      const bool far = offset < -id || offset >= target_.vocab_size - id;
      if (far || std::exchange(taken[static_cast<size_t>(id + offset)], 1) != 0) {
        return Error(ErrorCode::kDataLoss, "tensor 'd2t': token {} and {} is {} the vocabulary", id,
                     offset, far ? "outside" : "twice in");
      }
      weights.target_ids.push_back(static_cast<int32_t>(id + offset));
    }
    return OkStatus();
  }

  const Checkpoint& head_;
  const ModelConfig& config_;
  const int32_t draft_vocab_;
  const LoadOptions& options_;
  const ModelFacts& target_;
  TensorReader reader_;
  std::string prefix_;  // of what lies in the head's model
  std::string layer_;   // of its layer's tensors
  Range ffn_;
};

}  // namespace

int64_t Eagle3Weights::bytes() const {
  return fc.bytes() + attention.qkv.bytes() + attention.output.bytes() + mlp.gate_up.bytes() +
         mlp.down.bytes() + head.bytes() +
         static_cast<int64_t>(token_norm.size() + state_norm.size() + mlp_norm.size() +
                              final_norm.size() + attention.q_norm.size() +
                              attention.k_norm.size() + embedding.storage.size());
}

Result<Eagle3Weights> LoadEagle3Weights(const Checkpoint& head, const Eagle3Config& config,
                                        const LoadOptions& options, const ModelFacts& target) {
  return Loader(head, config, options, target).Load();
}

}  // namespace hayate::models
