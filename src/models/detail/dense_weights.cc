#include "models/detail/dense_weights.h"

#include <numeric>

#include "base/error.h"
#include "models/detail/load_progress.h"
#include "models/detail/tensor_names.h"
#include "models/detail/tensor_reader.h"

namespace hayate::models {
namespace {

using weights::Checkpoint;

// Rows of the head go in whole tiles of the matrix product; columns of plain types likewise.
constexpr int64_t kTileRows = 16;
constexpr int64_t kMinColumnUnit = 32;

// The largest unit of columns among the tensors "<layer>.<name>.weight" that there are, elements.
Result<int64_t> LargestBlock(const Checkpoint& checkpoint, const ModelConfig& config,
                             std::string_view name) {
  const TensorNames& names = NamesOf(checkpoint);
  int64_t largest = 1;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    if (name == names.down && config.is_sparse(layer)) continue;
    ASSIGN_OR_RETURN(const ConstTensorView tensor, checkpoint.Tensor(names.Layer(layer, name)));
    largest = std::max(largest, ColumnUnit(tensor.dtype));
  }
  return largest;
}

// Reads and prepares the tensors of one rank.
class Loader {
 public:
  Loader(const Checkpoint& checkpoint, const ModelConfig& config, const LoadOptions& options)
      : checkpoint_(checkpoint),
        config_(config),
        options_(options),
        names_(NamesOf(checkpoint)),
        reader_(checkpoint, options, config.fp8_block) {}

  Result<DenseWeights> Load() {
    DenseWeights weights;
    RETURN_IF_ERROR(PlanShard(weights));
    weights.layers.resize(static_cast<size_t>(config_.num_layers));
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      RETURN_IF_ERROR(LoadLayer(layer, weights, weights.layers[static_cast<size_t>(layer)]));
      ReportProgress(checkpoint_, options_, layer + 1, config_.num_layers + 1);
    }
    RETURN_IF_ERROR(LoadEnds(weights));
    ReportProgress(checkpoint_, options_, 1, 1);
    return weights;
  }

 private:
  int64_t hidden() const { return config_.hidden_size; }

  Status PlanShard(DenseWeights& weights) {
    ASSIGN_OR_RETURN(const HeadShard heads,
                     PlanHeads(checkpoint_, config_, options_.rank, options_.num_ranks));
    weights.attention = {.heads = heads,
                         .head_dim = config_.head_dim,
                         .group_size = config_.group_size(),
                         .rotary_dim = config_.rope.rotary_dim,
                         .pairing = config_.rope.pairing,
                         .norm_eps = config_.norm_eps};
    ASSIGN_OR_RETURN(const int64_t block, LargestBlock(checkpoint_, config_, names_.down));
    weights.ffn = SplitUnits(config_.ffn_size, std::max(block, kMinColumnUnit), options_.rank,
                             options_.num_ranks);
    weights.vocab = SplitUnits(config_.vocab_size, kTileRows, options_.rank, options_.num_ranks);
    if (config_.moe) {
      moe_ = PlanMoe(*config_.moe, options_);
      weights.moe = MoeConfigOf(*config_.moe, hidden(), moe_);
      weights.num_experts = moe_.num_experts;
      weights.num_dp_ranks = moe_.num_dp_ranks;
    }
    return OkStatus();
  }

  Result<Buffer> Norm(const std::string& name, int64_t size) { return reader_.Vector(name, size); }

  struct Piece {
    std::string_view name;
    int64_t n;   // rows of the whole matrix
    Range rows;  // of this rank
  };
  // Pieces of layer `layer` with `k` columns, of which this rank takes `columns`.
  Result<Linear> LayerLinear(int layer, const std::vector<Piece>& pieces, int64_t k, Range columns,
                             bool biased) {
    std::vector<TensorReader::Matrix> matrices;
    std::vector<TensorReader::VectorPart> biases;
    for (const Piece& piece : pieces) {
      matrices.push_back({names_.Layer(layer, piece.name, ""), piece.n, k, piece.rows, columns});
      if (!biased || piece.rows.size() == 0 || columns.size() == 0) continue;
      biases.push_back({names_.Layer(layer, piece.name, ".bias"), piece.n, piece.rows});
    }
    Linear linear;
    ASSIGN_OR_RETURN(linear.weights, reader_.Pack(matrices));
    ASSIGN_OR_RETURN(linear.bias, reader_.Vectors(biases));
    return linear;
  }

  Status LoadLayer(int index, const DenseWeights& weights, DenseLayer& layer) {
    const int64_t d = config_.head_dim;
    const auto heads = [&](Range range) { return Range{range.begin * d, range.end * d}; };
    const Range q = heads(weights.attention.heads.query), kv = heads(weights.attention.heads.kv);
    const int64_t q_rows = config_.num_heads * d, kv_rows = config_.num_kv_heads * d;
    const Range all_hidden = {0, hidden()};
    // A bias after a sum over ranks is added once, by the first.
    const bool first = options_.rank == 0;

    ASSIGN_OR_RETURN(layer.attention_norm,
                     Norm(names_.Layer(index, names_.attention_norm), hidden()));
    ASSIGN_OR_RETURN(
        layer.attention.qkv,
        LayerLinear(index,
                    {{names_.q, q_rows, q}, {names_.k, kv_rows, kv}, {names_.v, kv_rows, kv}},
                    hidden(), all_hidden, config_.qkv_bias));
    ASSIGN_OR_RETURN(layer.attention.output,
                     LayerLinear(index, {{names_.output, hidden(), all_hidden}}, q_rows, q,
                                 config_.output_bias && first));
    if (config_.qk_norm) {
      ASSIGN_OR_RETURN(layer.attention.q_norm, Norm(names_.Layer(index, names_.q_norm), d));
      ASSIGN_OR_RETURN(layer.attention.k_norm, Norm(names_.Layer(index, names_.k_norm), d));
    }
    layer.attention.window = config_.windows[static_cast<size_t>(index)];
    if (config_.attention_sinks) {
      ASSIGN_OR_RETURN(layer.attention.sinks,
                       reader_.Vector(names_.Layer(index, names_.sinks, ""), config_.num_heads,
                                      weights.attention.heads.query));
    }
    return LoadMlp(index, weights, layer);
  }

  Status LoadMlp(int index, const DenseWeights& weights, DenseLayer& layer) {
    const Range all_hidden = {0, hidden()};
    const bool first = options_.rank == 0;
    const Range ffn = weights.ffn;
    ASSIGN_OR_RETURN(layer.mlp_norm, Norm(names_.Layer(index, names_.mlp_norm), hidden()));
    if (config_.is_sparse(index)) {
      const bool gguf = checkpoint_.format() == weights::CheckpointFormat::kGguf;
      const MoeNames& names = gguf ? kGgufMoe : config_.moe->router_bias ? kGptOssMoe : kQwenMoe;
      const std::string prefix = names_.Layer(index, gguf ? "" : "mlp.", "");
      ASSIGN_OR_RETURN(layer.moe,
                       LoadMoe(reader_, *config_.moe, hidden(), names, index, prefix, moe_));
      return OkStatus();
    }
    ASSIGN_OR_RETURN(layer.mlp.gate_up, LayerLinear(index,
                                                    {{names_.gate, config_.ffn_size, ffn},
                                                     {names_.up, config_.ffn_size, ffn}},
                                                    hidden(), all_hidden, config_.mlp_bias));
    ASSIGN_OR_RETURN(layer.mlp.down, LayerLinear(index, {{names_.down, hidden(), all_hidden}},
                                                 config_.ffn_size, ffn, config_.mlp_bias && first));
    return OkStatus();
  }

  Status LoadEnds(DenseWeights& weights) {
    const Shape table{config_.vocab_size, hidden()};
    ASSIGN_OR_RETURN(const ConstTensorView embedding,
                     reader_.Tensor(std::string(names_.embedding), table));
    ASSIGN_OR_RETURN(weights.embedding, PlaceTable(*options_.device, embedding));
    ASSIGN_OR_RETURN(weights.final_norm, Norm(std::string(names_.final_norm), hidden()));
    ConstTensorView head = embedding;
    if (!config_.tied_head) {
      ASSIGN_OR_RETURN(head, reader_.Tensor(std::string(names_.head), table));
    }
    if (weights.vocab.size() == 0) return OkStatus();
    const ops::MatrixPiece piece = {head, weights.vocab.begin, weights.vocab.end, 0, hidden()};
    // Whoever asks for fp8 layers keeps the head: it is read once a step and decides every token.
    const auto precision = options_.precision == ops::MatmulPrecision::kFp8
                               ? ops::MatmulPrecision::kFast
                               : options_.precision;
    ASSIGN_OR_RETURN(weights.head.weights,
                     ops::PackMatrix(*options_.device, std::span(&piece, 1), precision));
    weights.head.weights->sum_order = options_.sum_order;
    return OkStatus();
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const LoadOptions& options_;
  const TensorNames& names_;
  TensorReader reader_;
  MoeShard moe_;
};

}  // namespace

int64_t DenseWeights::bytes() const {
  int64_t sum = head.bytes() + static_cast<int64_t>(final_norm.size());
  for (const DenseLayer& layer : layers) {
    sum += layer.attention.qkv.bytes() + layer.attention.output.bytes() +
           layer.mlp.gate_up.bytes() + layer.mlp.down.bytes() +
           (layer.moe ? layer.moe->bytes() : 0) +
           static_cast<int64_t>(layer.attention_norm.size() + layer.mlp_norm.size() +
                                layer.attention.sinks.size());
  }
  return sum;
}

Result<HeadShard> PlanHeads(const Checkpoint& checkpoint, const ModelConfig& config, int rank,
                            int num_ranks) {
  const TensorNames& names = NamesOf(checkpoint);
  ASSIGN_OR_RETURN(const int64_t block, LargestBlock(checkpoint, config, names.output));
  const int64_t unit = std::lcm(block, int64_t{config.head_dim}) / config.head_dim;
  return SplitHeads(config.num_heads, config.num_kv_heads, unit, rank, num_ranks);
}

Result<DenseWeights> LoadDenseWeights(const Checkpoint& checkpoint, const ModelConfig& config,
                                      const LoadOptions& options) {
  return Loader(checkpoint, config, options).Load();
}

}  // namespace hayate::models
