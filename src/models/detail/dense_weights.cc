#include "models/detail/dense_weights.h"

#include <numeric>

#include "base/error.h"
#include "models/detail/tensor_names.h"
#include "weights/dequantize.h"

namespace hayate::models {
namespace {

using weights::Checkpoint;

// Rows of the head go in whole tiles of the matrix product; columns of plain types likewise.
constexpr int64_t kTileRows = 16;
constexpr int64_t kMinColumnUnit = 32;

// The largest block among the tensors "<layer>.<name>.weight", elements.
Result<int64_t> LargestBlock(const Checkpoint& checkpoint, const ModelConfig& config,
                             std::string_view name) {
  const TensorNames& names = NamesOf(checkpoint.format());
  int64_t largest = 1;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    ASSIGN_OR_RETURN(const ConstTensorView tensor, checkpoint.Tensor(names.Layer(layer, name)));
    largest = std::max<int64_t>(largest, Info(tensor.dtype).block_elements);
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
        names_(NamesOf(checkpoint.format())) {}

  Result<DenseWeights> Load() {
    DenseWeights weights;
    RETURN_IF_ERROR(PlanShard(weights));
    weights.layers.resize(static_cast<size_t>(config_.num_layers));
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      RETURN_IF_ERROR(LoadLayer(layer, weights, weights.layers[static_cast<size_t>(layer)]));
      Report(layer + 1);
    }
    RETURN_IF_ERROR(LoadEnds(weights));
    Report(config_.num_layers + 1);
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
    return OkStatus();
  }

  // A tensor of the given shape. Values that are not finite are found here: every tensor is looked
  // through by one of the ranks.
  Result<ConstTensorView> Tensor(const std::string& name, const Shape& shape) {
    ASSIGN_OR_RETURN(const ConstTensorView tensor, checkpoint_.Tensor(name, shape));
    if (num_tensors_++ % options_.num_ranks == options_.rank) {
      RETURN_IF_ERROR(checkpoint_.CheckFinite(name));
    }
    return tensor;
  }

  // Elements `parts` of vectors, joined, as f32.
  Result<Buffer> Vector(const std::vector<std::pair<std::string, Range>>& parts,
                        int64_t full_size) {
    int64_t size = 0;
    for (const auto& part : parts) size += part.second.size();
    if (size == 0) return Buffer();
    ASSIGN_OR_RETURN(Buffer buffer,
                     Buffer::Allocate(*options_.device, static_cast<size_t>(size) * sizeof(float)));
    std::vector<float> joined, whole;
    for (const auto& [name, range] : parts) {
      ASSIGN_OR_RETURN(const ConstTensorView tensor, Tensor(name, SizeOf(name, full_size)));
      whole.resize(static_cast<size_t>(tensor.shape.num_elements()));
      weights::Dequantize(tensor, whole);
      joined.insert(joined.end(), whole.begin() + range.begin, whole.begin() + range.end);
    }
    options_.device->Upload(buffer.data(), joined.data(), buffer.size());
    return buffer;
  }
  Result<Buffer> Norm(const std::string& name, int64_t size) {
    return Vector({{name, {0, size}}}, size);
  }

  // Biases of q, k and v differ in length; a full size of 0 takes the tensor's own.
  Shape SizeOf(const std::string& name, int64_t full_size) const {
    if (full_size > 0) return Shape{full_size};
    const auto found = checkpoint_.tensors().find(name);
    return found == checkpoint_.tensors().end() ? Shape{0}
                                                : Shape{found->second.shape.num_elements()};
  }

  struct Piece {
    std::string_view name;
    int64_t n;   // rows of the whole matrix
    Range rows;  // of this rank
  };
  // Pieces of layer `layer` with `k` columns, of which this rank takes `columns`.
  Result<Linear> LayerLinear(int layer, const std::vector<Piece>& pieces, int64_t k, Range columns,
                             bool biased) {
    std::vector<ops::MatrixPiece> matrices;
    std::vector<std::pair<std::string, Range>> biases;
    for (const Piece& piece : pieces) {
      ASSIGN_OR_RETURN(const ConstTensorView tensor,
                       Tensor(names_.Layer(layer, piece.name), Shape{piece.n, k}));
      if (piece.rows.size() == 0 || columns.size() == 0) continue;
      matrices.push_back({tensor, piece.rows.begin, piece.rows.end, columns.begin, columns.end});
      if (biased) biases.emplace_back(names_.Layer(layer, piece.name, ".bias"), piece.rows);
    }
    Linear linear;
    if (matrices.empty()) return linear;
    ASSIGN_OR_RETURN(linear.weights,
                     ops::PackMatrix(*options_.device, matrices, options_.precision));
    ASSIGN_OR_RETURN(linear.bias, Vector(biases, 0));
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

    const Range ffn = weights.ffn;
    ASSIGN_OR_RETURN(layer.mlp_norm, Norm(names_.Layer(index, names_.mlp_norm), hidden()));
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
    ASSIGN_OR_RETURN(const ConstTensorView embedding, Tensor(std::string(names_.embedding), table));
    ASSIGN_OR_RETURN(weights.embedding, PlaceTable(*options_.device, embedding));
    ASSIGN_OR_RETURN(weights.final_norm, Norm(std::string(names_.final_norm), hidden()));
    ConstTensorView head = embedding;
    if (!config_.tied_head) {
      ASSIGN_OR_RETURN(head, Tensor(std::string(names_.head), table));
    }
    if (weights.vocab.size() == 0) return OkStatus();
    const ops::MatrixPiece piece = {head, weights.vocab.begin, weights.vocab.end, 0, hidden()};
    ASSIGN_OR_RETURN(weights.head.weights,
                     ops::PackMatrix(*options_.device, std::span(&piece, 1), options_.precision));
    return OkStatus();
  }

  void Report(int layers_done) const {
    if (!options_.progress) return;
    int64_t total = 0;
    for (const auto& [name, info] : checkpoint_.tensors())
      total += static_cast<int64_t>(info.bytes);
    total /= options_.num_ranks;
    options_.progress(total * layers_done / (config_.num_layers + 1), total);
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const LoadOptions& options_;
  const TensorNames& names_;
  int num_tensors_ = 0;
};

}  // namespace

int64_t DenseWeights::bytes() const {
  int64_t sum = head.bytes() + static_cast<int64_t>(final_norm.size());
  for (const DenseLayer& layer : layers) {
    sum += layer.attention.qkv.bytes() + layer.attention.output.bytes() +
           layer.mlp.gate_up.bytes() + layer.mlp.down.bytes() +
           static_cast<int64_t>(layer.attention_norm.size() + layer.mlp_norm.size());
  }
  return sum;
}

Result<HeadShard> PlanHeads(const Checkpoint& checkpoint, const ModelConfig& config, int rank,
                            int num_ranks) {
  const TensorNames& names = NamesOf(checkpoint.format());
  ASSIGN_OR_RETURN(const int64_t block, LargestBlock(checkpoint, config, names.output));
  const int64_t unit = std::lcm(block, int64_t{config.head_dim}) / config.head_dim;
  return SplitHeads(config.num_heads, config.num_kv_heads, unit, rank, num_ranks);
}

Result<DenseWeights> LoadDenseWeights(const Checkpoint& checkpoint, const ModelConfig& config,
                                      const LoadOptions& options) {
  return Loader(checkpoint, config, options).Load();
}

}  // namespace hayate::models
