#include "models/detail/moe_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/detail/held_experts.h"
#include "weights/dequantize.h"

namespace hayate::models {
namespace {

constexpr auto kExact = ops::MatmulPrecision::kExact;
constexpr int64_t kSharedUnit = 32;  // columns: what a cut matrix is a multiple of
constexpr int32_t kFp4Columns = 32;  // that share a scale

Range Whole(int64_t count) { return {0, count}; }

// Reads the experts of one layer.
class ExpertReader {
 public:
  ExpertReader(TensorReader& reader, const MoeSettings& moe, int64_t hidden_size,
               const std::string& layer_prefix, HeldExperts held)
      : reader_(reader),
        moe_(moe),
        hidden_size_(hidden_size),
        layer_prefix_(layer_prefix),
        prefix_(layer_prefix + "experts."),
        held_(std::move(held)) {}

  Result<ops::ExpertWeights> Read() {
    ops::ExpertWeights experts;
    experts.first = held_.first;
    if (reader_.Has(layer_prefix_ + "ffn_gate_exps.weight")) {
      RETURN_IF_ERROR(ReadStacked(experts));
      return experts;
    }
    if (reader_.Has(prefix_ + "gate_up_proj_blocks")) {
      RETURN_IF_ERROR(ReadMxfp4("gate_up_proj", 2 * ffn(), hidden(), experts.gate_up));
      RETURN_IF_ERROR(ReadMxfp4("down_proj", hidden(), ffn(), experts.down));
    } else if (reader_.Has(prefix_ + "gate_up_proj")) {
      RETURN_IF_ERROR(ReadTransposed("gate_up_proj", 2 * ffn(), hidden(), experts.gate_up));
      RETURN_IF_ERROR(ReadTransposed("down_proj", hidden(), ffn(), experts.down));
    } else {
      RETURN_IF_ERROR(ReadOneByOne(experts));
    }
    if (!moe_.expert_bias) return experts;
    ASSIGN_OR_RETURN(experts.gate_up_bias, Bias("gate_up_proj_bias", 2 * ffn(), 2));
    ASSIGN_OR_RETURN(experts.down_bias, Bias("down_proj_bias", hidden(), 1));
    return experts;
  }

 private:
  int64_t hidden() const { return hidden_size_; }
  int64_t ffn() const { return moe_.expert_size; }
  int64_t count() const { return moe_.router.num_experts; }
  std::string Path(const char* name) const { return prefix_ + name; }

  // "<prefix><expert>.gate_proj.weight" and so on.
  Status ReadOneByOne(ops::ExpertWeights& experts) {
    for (const int64_t e : held_.ids) {
      const std::string expert = prefix_ + std::to_string(e) + ".";
      const auto rows = [&](const char* name) {
        return TensorReader::Matrix{expert + name, ffn(), hidden(), Whole(ffn()), Whole(hidden())};
      };
      ASSIGN_OR_RETURN(auto gate_up, reader_.PackOwn({rows("gate_proj"), rows("up_proj")}));
      ASSIGN_OR_RETURN(auto down, reader_.PackOwn({{expert + "down_proj", hidden(), ffn(),
                                                    Whole(hidden()), Whole(ffn())}}));
      experts.gate_up.push_back(std::move(gate_up));
      experts.down.push_back(std::move(down));
    }
    return OkStatus();
  }

  // GGUF: "blk.3.ffn_gate_exps.weight" [E, F, H] and so on, of any type that a matrix can have.
  Status ReadStacked(ops::ExpertWeights& experts) {
    ASSIGN_OR_RETURN(const ConstTensorView gate, Stacked("ffn_gate_exps", ffn(), hidden()));
    ASSIGN_OR_RETURN(const ConstTensorView up, Stacked("ffn_up_exps", ffn(), hidden()));
    ASSIGN_OR_RETURN(const ConstTensorView down, Stacked("ffn_down_exps", hidden(), ffn()));
    for (const int64_t e : held_.ids) {
      RETURN_IF_ERROR(Pack("ffn_gate_exps", {PieceOf(gate, e), PieceOf(up, e)}, experts.gate_up));
      RETURN_IF_ERROR(Pack("ffn_down_exps", {PieceOf(down, e)}, experts.down));
    }
    if (!moe_.expert_bias) return OkStatus();
    std::vector<float> both;
    ASSIGN_OR_RETURN(const std::vector<float> gates, Values("ffn_gate_exps.bias", ffn()));
    ASSIGN_OR_RETURN(const std::vector<float> ups, Values("ffn_up_exps.bias", ffn()));
    ASSIGN_OR_RETURN(const std::vector<float> downs, Values("ffn_down_exps.bias", hidden()));
    std::vector<float> down_bias;
    for (const int64_t e : held_.ids) {
      AddRow(gates, e, ffn(), both);
      AddRow(ups, e, ffn(), both);
      AddRow(downs, e, hidden(), down_bias);
    }
    ASSIGN_OR_RETURN(experts.gate_up_bias, Placed(both));
    ASSIGN_OR_RETURN(experts.down_bias, Placed(down_bias));
    return OkStatus();
  }

  Result<ConstTensorView> Stacked(const char* name, int64_t n, int64_t k) {
    return reader_.Tensor(layer_prefix_ + name + ".weight", {count(), n, k});
  }
  // Expert e of a [E, N, K] tensor.
  static ops::MatrixPiece PieceOf(const ConstTensorView& stacked, int64_t e) {
    const int64_t n = stacked.shape[1], k = stacked.shape[2];
    return ops::MatrixPiece::Whole(
        {stacked.data + e * n * RowBytes(stacked.dtype, k), stacked.dtype, {n, k}});
  }
  Status Pack(const char* name, const std::vector<ops::MatrixPiece>& pieces,
              std::vector<ops::PackedMatrix>& matrices) {
    Result<ops::PackedMatrix> packed =
        ops::PackMatrix(*reader_.options().device, pieces, reader_.options().precision);
    if (!packed.ok()) return packed.status().Under(layer_prefix_ + name);
    matrices.push_back(std::move(packed).value());
    return OkStatus();
  }
  Result<std::vector<float>> Values(const char* name, int64_t width) {
    ASSIGN_OR_RETURN(const ConstTensorView tensor,
                     reader_.Tensor(layer_prefix_ + name, {count(), width}));
    std::vector<float> values(static_cast<size_t>(count() * width));
    weights::Dequantize(tensor, values);
    return values;
  }
  static void AddRow(const std::vector<float>& from, int64_t row, int64_t width,
                     std::vector<float>& to) {
    const auto begin = from.begin() + row * width;
    to.insert(to.end(), begin, begin + width);
  }
  // On the device; nothing where there are no values.
  Result<Buffer> Placed(const std::vector<float>& values) {
    if (values.empty()) return Buffer();
    Device& device = *reader_.options().device;
    ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(device, values.size() * sizeof(float)));
    device.Upload(buffer.data(), values.data(), buffer.size());
    return buffer;
  }

  // GPT-OSS as shipped: blocks [E, N, K/32, 16], even columns in the low halves, and scales
  // [E, N, K/32]. Rows of gate and up take turns.
  Status ReadMxfp4(const char* name, int64_t n, int64_t k,
                   std::vector<ops::PackedMatrix>& matrices) {
    if (k % kFp4Columns != 0) {
      return Error(ErrorCode::kDataLoss, "{}: rows of {} are no multiple of {}", Path(name), k,
                   kFp4Columns);
    }
    const int64_t groups = k / kFp4Columns;
    ASSIGN_OR_RETURN(const ConstTensorView blocks,
                     reader_.Tensor(Path(name) + "_blocks", {count(), n, groups, kFp4Columns / 2}));
    ASSIGN_OR_RETURN(const ConstTensorView scales,
                     reader_.Tensor(Path(name) + "_scales", {count(), n, groups}));
    if (blocks.dtype != DType::kU8 || scales.dtype != DType::kU8) {
      return Error(ErrorCode::kDataLoss, "{}: blocks of {} and scales of {}, must be U8",
                   Path(name), Info(blocks.dtype).name, Info(scales.dtype).name);
    }
    RETURN_IF_ERROR(CheckExponents(name, scales, n * groups));
    for (const int64_t e : held_.ids) {
      ops::MatrixPiece piece =
          ops::MatrixPiece::Whole({blocks.data + e * n * k / 2, DType::kF4E2M1, {n, k}});
      piece.scales = {.values = {scales.data + e * n * groups, DType::kF8E8M0, {n, groups}},
                      .rows = 1,
                      .cols = kFp4Columns};
      RETURN_IF_ERROR(PackTurns(name, piece, matrices));
    }
    return OkStatus();
  }

  // An exponent of 0xFF means NaN, and 0xFD and 0xFE overflow with the largest code.
  Status CheckExponents(const char* name, const ConstTensorView& scales, int64_t per_expert) const {
    for (const int64_t e : held_.ids) {
      const std::byte* begin = scales.data + e * per_expert;
      const std::byte* end = begin + per_expert;
      const std::byte* bad =
          std::find_if(begin, end, [](std::byte b) { return b >= std::byte{0xFD}; });
      if (bad == end) continue;
      return Error(ErrorCode::kDataLoss, "{}_scales: the scale at byte {} is not finite",
                   Path(name), bad - scales.data);
    }
    return OkStatus();
  }

  // GPT-OSS as transformers saves it without MXFP4: [E, K, N], here turned expert by expert.
  Status ReadTransposed(const char* name, int64_t n, int64_t k,
                        std::vector<ops::PackedMatrix>& matrices) {
    ASSIGN_OR_RETURN(const ConstTensorView whole, reader_.Tensor(Path(name), {count(), k, n}));
    if (IsBlockType(whole.dtype) || Info(whole.dtype).block_elements != 1) {
      return Error(ErrorCode::kUnsupported, "{}: transposed experts of type {}", Path(name),
                   Info(whole.dtype).name);
    }
    const int64_t element = Info(whole.dtype).block_bytes;
    std::vector<std::byte> turned(static_cast<size_t>(n * k * element));
    for (const int64_t e : held_.ids) {
      const std::byte* from = whole.data + e * n * k * element;
      for (int64_t row = 0; row < n; ++row) {
        for (int64_t col = 0; col < k; ++col) {
          std::memcpy(&turned[static_cast<size_t>((row * k + col) * element)],
                      from + (col * n + row) * element, static_cast<size_t>(element));
        }
      }
      const auto piece = ops::MatrixPiece::Whole({turned.data(), whole.dtype, {n, k}});
      RETURN_IF_ERROR(PackTurns(name, piece, matrices));
    }
    return OkStatus();
  }

  // Gate and up take turns in the rows of gate_up_proj; the packed matrix has one after the other.
  Status PackTurns(const char* name, const ops::MatrixPiece& whole,
                   std::vector<ops::PackedMatrix>& matrices) {
    std::vector<ops::MatrixPiece> pieces = {whole};
    if (name == std::string_view("gate_up_proj")) {
      pieces = {whole, whole};
      pieces[0].row_step = pieces[1].row_step = 2;
      pieces[1].row_begin = 1;
    }
    return Pack(("experts." + std::string(name)).c_str(), pieces, matrices);
  }

  // The held experts' rows of a [E, width] tensor; element i of `turns` kinds that take turns goes
  // to kind i % turns.
  Result<Buffer> Bias(const char* name, int64_t width, int64_t turns) {
    ASSIGN_OR_RETURN(const ConstTensorView tensor, reader_.Tensor(Path(name), {count(), width}));
    std::vector<float> whole(static_cast<size_t>(count() * width));
    weights::Dequantize(tensor, whole);
    std::vector<float> sorted;
    for (const int64_t e : held_.ids) {
      for (int64_t kind = 0; kind < turns; ++kind) {
        for (int64_t i = kind; i < width; i += turns) {
          sorted.push_back(whole[static_cast<size_t>(e * width + i)]);
        }
      }
    }
    return Placed(sorted);
  }

  TensorReader& reader_;
  const MoeSettings& moe_;
  const int64_t hidden_size_;
  const std::string layer_prefix_;  // "blk.3." or "model.layers.3.mlp."
  const std::string prefix_;        // "model.layers.3.mlp.experts."
  const HeldExperts held_;
};

}  // namespace

namespace {

// One row, which GGUF files hold as a vector.
Result<ops::PackedMatrix> PackRow(TensorReader& reader, const std::string& name, int64_t k) {
  const auto found = reader.checkpoint().tensors().find(name + ".weight");
  const bool vector =
      found != reader.checkpoint().tensors().end() && found->second.shape.rank() == 1;
  if (!vector) return reader.PackWhole(name, 1, k, kExact);
  ASSIGN_OR_RETURN(ConstTensorView row, reader.Tensor(name + ".weight", {k}));
  row.shape = {1, k};
  const ops::MatrixPiece piece = ops::MatrixPiece::Whole(row);
  return ops::PackMatrix(*reader.options().device, std::span(&piece, 1), kExact);
}

}  // namespace

MoeShard PlanMoe(const MoeSettings& moe, const LoadOptions& options) {
  return {NumHeldExperts(options, moe.router.num_experts), NumDpRanks(options),
          SharedFeaturesOf(options, moe.shared_size, kSharedUnit)};
}

ops::MoeConfig MoeConfigOf(const MoeSettings& moe, int64_t hidden_size, const MoeShard& shard) {
  return {.router = moe.router,
          .form = moe.form,
          .hidden_size = static_cast<int32_t>(hidden_size),
          .expert_size = moe.expert_size,
          .shared_size = static_cast<int32_t>(shard.shared.size())};
}

Result<ops::MoeWeights> LoadMoe(TensorReader& reader, const MoeSettings& moe, int64_t hidden_size,
                                const MoeNames& names, int layer, const std::string& prefix,
                                const MoeShard& shard) {
  const int64_t h = hidden_size, experts = moe.router.num_experts;
  const std::string gate = prefix + names.gate;
  ops::MoeWeights weights;
  ASSIGN_OR_RETURN(weights.gate, reader.PackWhole(gate, experts, h, kExact));
  if (moe.router_bias) {
    ASSIGN_OR_RETURN(weights.gate_bias, reader.Vector(gate + ".bias", experts));
  }
  if (names.choice_bias != nullptr) {
    ASSIGN_OR_RETURN(weights.choice_bias, reader.Vector(prefix + names.choice_bias, experts));
  }
  HeldExperts held = HeldExpertsOf(reader.options(), layer, moe.router.num_experts);
  ASSIGN_OR_RETURN(weights.experts, ExpertReader(reader, moe, h, prefix, std::move(held)).Read());
  RETURN_IF_ERROR(ops::PlaceExperts(*reader.options().device, weights.experts));
  if (moe.shared_size == 0) return weights;
  const int64_t f = moe.shared_size;
  const auto rows = [&](const char* name) {
    return TensorReader::Matrix{prefix + name, f, h, shard.shared, Whole(h)};
  };
  ASSIGN_OR_RETURN(weights.shared_gate_up,
                   reader.Pack({rows(names.shared_gate_proj), rows(names.shared_up_proj)}));
  ASSIGN_OR_RETURN(weights.shared_down,
                   reader.Pack({{prefix + names.shared_down_proj, h, f, Whole(h), shard.shared}}));
  if (moe.shared_gate) {
    ASSIGN_OR_RETURN(weights.shared_gate, PackRow(reader, prefix + names.shared_gate, h));
  }
  return weights;
}

}  // namespace hayate::models
