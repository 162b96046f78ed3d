#include "models/detail/deepseek_v3_weights.h"

#include <numeric>
#include <utility>

#include "base/error.h"
#include "models/detail/load_progress.h"
#include "models/detail/moe_weights.h"
#include "models/detail/tensor_reader.h"
#include "tensor/float16.h"
#include "weights/dequantize.h"

namespace hayate::models {
namespace {

using Matrix = TensorReader::Matrix;

constexpr auto kExact = ops::MatmulPrecision::kExact;
constexpr int64_t kHeadRows = 16;    // rows of the head go in whole tiles of the product
constexpr int64_t kColumnUnit = 32;  // columns of cut matrices are multiples of it

Range Whole(int64_t count) { return {0, count}; }
Range Times(Range range, int64_t width) { return {range.begin * width, range.end * width}; }

class Loader {
 public:
  Loader(const weights::Checkpoint& checkpoint, const DeepseekV3Config& config,
         const LoadOptions& options)
      : config_(config), options_(options), reader_(checkpoint, options, config.fp8_block) {}

  Result<DeepseekV3Weights> Load() {
    DeepseekV3Weights weights = Shards();
    weights.layers.resize(static_cast<size_t>(config_.num_layers));
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      RETURN_IF_ERROR(LoadLayer(layer, weights, weights.layers[static_cast<size_t>(layer)]));
      ReportProgress(reader_.checkpoint(), options_, layer + 1, config_.num_layers + 1);
    }
    RETURN_IF_ERROR(LoadEnds(weights));
    ReportProgress(reader_.checkpoint(), options_, 1, 1);
    return weights;
  }

  // The layer behind the last one. The config counts it among its sparse layers.
  Result<DeepseekV3Draft> LoadDraft() {
    const int64_t h = hidden();
    const std::string prefix = "model.layers." + std::to_string(config_.num_layers) + ".";
    DeepseekV3Draft draft;
    const DeepseekV3Weights shards = Shards();
    draft.moe = shards.moe;
    draft.num_experts = shards.num_experts;
    RETURN_IF_ERROR(LoadLayer(config_.num_layers, shards, draft.layer));
    ASSIGN_OR_RETURN(draft.token_norm, reader_.Vector(prefix + "enorm.weight", h));
    ASSIGN_OR_RETURN(draft.state_norm, reader_.Vector(prefix + "hnorm.weight", h));
    ASSIGN_OR_RETURN(draft.join, PackWhole(prefix + "eh_proj", h, 2 * h));
    ASSIGN_OR_RETURN(draft.final_norm, reader_.Vector(prefix + "shared_head.norm.weight", h));
    return draft;
  }

 private:
  int64_t hidden() const { return config_.hidden_size; }

  // What a rank holds of everything; no tensors.
  DeepseekV3Weights Shards() {
    DeepseekV3Weights weights;
    const int rank = options_.rank, ranks = options_.num_ranks;
    const int64_t unit = kColumnUnit / std::gcd<int64_t>(config_.value_dim, kColumnUnit);
    weights.heads = SplitUnits(config_.num_heads, unit, rank, ranks);
    weights.ffn = SplitUnits(config_.ffn_size, kColumnUnit, rank, ranks);
    weights.vocab = SplitUnits(config_.vocab_size, kHeadRows, rank, ranks);
    moe_ = PlanMoe(config_.moe, options_);
    weights.moe = MoeConfigOf(config_.moe, hidden(), moe_);
    weights.num_experts = moe_.num_experts;
    weights.num_dp_ranks = moe_.num_dp_ranks;
    return weights;
  }

  Result<Linear> Pack(const std::vector<Matrix>& matrices) {
    Linear linear;
    ASSIGN_OR_RETURN(linear.weights, reader_.Pack(matrices));
    return linear;
  }
  Result<Linear> PackWhole(const std::string& name, int64_t n, int64_t k) {
    return Pack({{name, n, k, Whole(n), Whole(k)}});
  }

  Status LoadLayer(int index, const DeepseekV3Weights& weights, DeepseekV3Layer& layer) {
    const std::string prefix = "model.layers." + std::to_string(index) + ".";
    const auto norm = [&](const char* name) {
      return reader_.Vector(prefix + name + ".weight", hidden());
    };
    ASSIGN_OR_RETURN(layer.attention_norm, norm("input_layernorm"));
    ASSIGN_OR_RETURN(layer.ffn_norm, norm("post_attention_layernorm"));
    RETURN_IF_ERROR(LoadAttention(prefix + "self_attn.", weights.heads, layer.attention));
    if (config_.moe.sparse[static_cast<size_t>(index)]) {
      ASSIGN_OR_RETURN(layer.moe, LoadMoe(reader_, config_.moe, hidden(), kDeepseekMoe, index,
                                          prefix + "mlp.", moe_));
      return OkStatus();
    }
    const int64_t f = config_.ffn_size;
    const auto rows = [&](const char* name) {
      return Matrix{prefix + "mlp." + name, f, hidden(), weights.ffn, Whole(hidden())};
    };
    ASSIGN_OR_RETURN(layer.mlp.gate_up, Pack({rows("gate_proj"), rows("up_proj")}));
    ASSIGN_OR_RETURN(layer.mlp.down,
                     Pack({{prefix + "mlp.down_proj", hidden(), f, Whole(hidden()), weights.ffn}}));
    return OkStatus();
  }

  Status LoadAttention(const std::string& prefix, Range heads, DeepseekV3Attention& layer) {
    const int64_t q_dim = config_.nope_dim + config_.rope_dim, h = hidden();
    const int64_t q_rank = config_.q_rank, q_rows = config_.num_heads * q_dim;
    if (q_rank > 0) {
      ASSIGN_OR_RETURN(layer.q_down, PackWhole(prefix + "q_a_proj", q_rank, h));
      ASSIGN_OR_RETURN(layer.q_norm, reader_.Vector(prefix + "q_a_layernorm.weight", q_rank));
    }
    const int64_t q_cols = q_rank > 0 ? q_rank : h;
    ASSIGN_OR_RETURN(layer.q_up, Pack({{prefix + (q_rank > 0 ? "q_b_proj" : "q_proj"), q_rows,
                                        q_cols, Times(heads, q_dim), Whole(q_cols)}}));
    ASSIGN_OR_RETURN(layer.kv_down, PackWhole(prefix + "kv_a_proj_with_mqa",
                                              config_.latent_dim + config_.rope_dim, h));
    ASSIGN_OR_RETURN(layer.kv_norm,
                     reader_.Vector(prefix + "kv_a_layernorm.weight", config_.latent_dim));
    ASSIGN_OR_RETURN(layer.projections, LoadProjections(prefix + "kv_b_proj", heads));
    const int64_t v_dim = config_.value_dim;
    ASSIGN_OR_RETURN(
        layer.output,
        Pack({{prefix + "o_proj", h, config_.num_heads * v_dim, Whole(h), Times(heads, v_dim)}}));
    if (!config_.indexer) return OkStatus();
    ASSIGN_OR_RETURN(layer.indexer, LoadIndexer(prefix + "indexer."));
    return OkStatus();
  }

  // The up projection, cut into heads: transposed keys and values, and whole for the materialised
  // form. Transposing cuts across blocks of scales, so the heads' matrices are dequantised: to
  // bf16, as the official engines keep them, or f32 in exact mode.
  Result<ops::LatentProjections> LoadProjections(const std::string& name, Range heads) {
    const int64_t l = config_.latent_dim, dn = config_.nope_dim, dv = config_.value_dim;
    const int64_t rows = config_.num_heads * (dn + dv);
    ops::LatentProjections result = {.num_heads = static_cast<int32_t>(heads.size()),
                                     .latent_dim = config_.latent_dim,
                                     .nope_dim = config_.nope_dim,
                                     .rope_dim = config_.rope_dim,
                                     .value_dim = config_.value_dim};
    const Matrix whole = {name, rows, l, Times(heads, dn + dv), Whole(l)};
    ASSIGN_OR_RETURN(const ops::MatrixPiece piece, reader_.Piece(whole));
    if (heads.size() == 0) return result;
    if (options_.latent_form == ops::LatentForm::kMaterialised) {
      ASSIGN_OR_RETURN(result.expand,
                       ops::PackMatrix(*options_.device, {&piece, 1}, options_.precision));
    }
    std::vector<float> row(static_cast<size_t>(l)), turned(static_cast<size_t>(l * dn)),
        value(static_cast<size_t>(dv * l));
    for (int64_t head = heads.begin; head < heads.end; ++head) {
      for (int64_t i = 0; i < dn + dv; ++i) {
        DequantizeRow(piece, head * (dn + dv) + i, row.data());
        for (int64_t c = 0; c < l && i < dn; ++c) {
          turned[static_cast<size_t>(c * dn + i)] = row[static_cast<size_t>(c)];
        }
        if (i >= dn) std::copy(row.begin(), row.end(), value.begin() + (i - dn) * l);
      }
      ASSIGN_OR_RETURN(result.absorb.emplace_back(), PackFloats(turned, l, dn));
      ASSIGN_OR_RETURN(result.value.emplace_back(), PackFloats(value, dv, l));
    }
    RETURN_IF_ERROR(ops::PlaceProjections(*options_.device, result));
    return result;
  }

  static void DequantizeRow(const ops::MatrixPiece& piece, int64_t index, float* out) {
    const int64_t k = piece.weights.shape[1];
    const DType dtype = piece.weights.dtype;
    weights::DequantizeRow(dtype, piece.weights.data + index * RowBytes(dtype, k), k, out);
    for (int64_t c = 0; c < k && !piece.scales.empty(); ++c) out[c] *= piece.scales.At(index, c);
  }

  Result<ops::PackedMatrix> PackFloats(const std::vector<float>& values, int64_t n, int64_t k) {
    // bf16 in every fast mode: so much precision goes into every product of a query.
    const auto precision = options_.precision == ops::MatmulPrecision::kExact
                               ? ops::MatmulPrecision::kExact
                               : ops::MatmulPrecision::kFast;
    ConstTensorView view{reinterpret_cast<const std::byte*>(values.data()), DType::kF32, {n, k}};
    std::vector<uint16_t> rounded;
    if (options_.precision != ops::MatmulPrecision::kExact) {
      for (const float value : values) rounded.push_back(FloatToBf16(value));
      view.data = reinterpret_cast<const std::byte*>(rounded.data());
      view.dtype = DType::kBF16;
    }
    const ops::MatrixPiece piece = ops::MatrixPiece::Whole(view);
    return ops::PackMatrix(*options_.device, {&piece, 1}, precision);
  }

  Result<TokenIndexer> LoadIndexer(const std::string& prefix) {
    const TokenIndexerSettings& settings = *config_.indexer;
    const int64_t d = settings.head_dim;
    TokenIndexer indexer;
    ASSIGN_OR_RETURN(indexer.q, PackWhole(prefix + "wq_b", settings.num_heads * d, config_.q_rank));
    ASSIGN_OR_RETURN(indexer.k, PackWhole(prefix + "wk", d, hidden()));
    ASSIGN_OR_RETURN(indexer.k_norm, reader_.Vector(prefix + "k_norm.weight", d));
    ASSIGN_OR_RETURN(indexer.k_norm_bias, reader_.Vector(prefix + "k_norm.bias", d));
    ASSIGN_OR_RETURN(
        indexer.head_weights.weights,
        reader_.PackWhole(prefix + "weights_proj", settings.num_heads, hidden(), kExact));
    return indexer;
  }

  Status LoadEnds(DeepseekV3Weights& weights) {
    const Shape table{config_.vocab_size, hidden()};
    ASSIGN_OR_RETURN(const ConstTensorView embedding,
                     reader_.Tensor("model.embed_tokens.weight", table));
    ASSIGN_OR_RETURN(weights.embedding, PlaceTable(*options_.device, embedding));
    ASSIGN_OR_RETURN(weights.final_norm, reader_.Vector("model.norm.weight", hidden()));
    const char* head = config_.tied_head ? "model.embed_tokens" : "lm_head";
    ASSIGN_OR_RETURN(weights.head,
                     Pack({{head, config_.vocab_size, hidden(), weights.vocab, Whole(hidden())}}));
    return OkStatus();
  }

  const DeepseekV3Config& config_;
  const LoadOptions& options_;
  TensorReader reader_;
  MoeShard moe_;
};

}  // namespace

int64_t TokenIndexer::bytes() const {
  return q.bytes() + k.bytes() + head_weights.bytes() +
         static_cast<int64_t>(k_norm.size() + k_norm_bias.size());
}

int64_t DeepseekV3Attention::bytes() const {
  return q_down.bytes() + q_up.bytes() + kv_down.bytes() + projections.bytes() + output.bytes() +
         (indexer ? indexer->bytes() : 0) + static_cast<int64_t>(q_norm.size() + kv_norm.size());
}

int64_t DeepseekV3Layer::bytes() const {
  return attention.bytes() + mlp.gate_up.bytes() + mlp.down.bytes() + (moe ? moe->bytes() : 0) +
         static_cast<int64_t>(attention_norm.size() + ffn_norm.size());
}

int64_t DeepseekV3Weights::bytes() const {
  int64_t sum = head.bytes() + static_cast<int64_t>(final_norm.size());
  for (const DeepseekV3Layer& layer : layers) sum += layer.bytes();
  return sum;
}

int64_t DeepseekV3Draft::bytes() const {
  return layer.bytes() + join.bytes() +
         static_cast<int64_t>(token_norm.size() + state_norm.size() + final_norm.size());
}

Result<DeepseekV3Weights> LoadDeepseekV3Weights(const weights::Checkpoint& checkpoint,
                                                const DeepseekV3Config& config,
                                                const LoadOptions& options) {
  return Loader(checkpoint, config, options).Load();
}

Result<DeepseekV3Draft> LoadDeepseekV3Draft(const weights::Checkpoint& checkpoint,
                                            const DeepseekV3Config& config,
                                            const LoadOptions& options) {
  DeepseekV3Config extended = config;
  extended.moe.sparse.push_back(true);
  return Loader(checkpoint, extended, options).LoadDraft();
}

}  // namespace hayate::models
