#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/moe/moe.h"
#include "ops/moe/testing/family_configs.h"
#include "ops/testing/gpu.h"
#include "weights/dequantize.h"

namespace hayate::ops {
namespace {

using testing::Epsilon;
using testing::RandomNormals;
using testing::Rounded;
using Floats = std::vector<float>;

// How a test stores weights, and how they are prepared.
struct Storage {
  const char* name;
  DType codes = DType::kF32;
  int32_t rows = 0, cols = 0;  // that share a scale
  DType scales = DType::kF32;
  MatmulPrecision precision = MatmulPrecision::kFast;
};
constexpr Storage kExact = {.name = "exact", .precision = MatmulPrecision::kExact};
constexpr Storage kExactFp4 = {"exact from mxfp4", DType::kF4E2M1,         1, 32,
                               DType::kF8E8M0,     MatmulPrecision::kExact};
constexpr Storage kBf16 = {"bf16", DType::kBF16};
constexpr Storage kFp8 = {"fp8 128 x 128", DType::kF8E4M3, 128, 128};
constexpr Storage kFp8Rows = {"fp8 of rows", DType::kBF16,         0, 0,
                              DType::kF32,   MatmulPrecision::kFp8};
constexpr Storage kMxfp4 = {"mxfp4", DType::kF4E2M1, 1, 32, DType::kF8E8M0};

double RootMeanSquare(const Floats& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * double{value};
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// A matrix [n, k] of random values of order 1/√k, stored, and what the store holds.
class Stored {
 public:
  Stored(const Storage& storage, int64_t n, int64_t k, uint64_t seed) : storage_(storage) {
    Rng rng(seed);
    const float sigma = 1.0f / std::sqrt(static_cast<float>(k));
    values.resize(static_cast<size_t>(n * k));
    const int64_t bytes = n * RowBytes(storage.codes, k);
    codes_.resize(static_cast<size_t>(bytes));
    for (int64_t i = 0; i < n * k; ++i) StoreCode(i, rng.NextNormal(), sigma);
    weights::Dequantize({codes_.data(), storage.codes, {n, k}}, values);
    piece = MatrixPiece::Whole({codes_.data(), storage.codes, {n, k}});
    if (storage.rows == 0) return;
    const Shape shape{(n + storage.rows - 1) / storage.rows, (k + storage.cols - 1) / storage.cols};
    scales_.resize(static_cast<size_t>(shape.num_elements() * Info(storage.scales).block_bytes));
    for (int64_t i = 0; i < shape.num_elements(); ++i) StoreScale(i, sigma, rng);
    piece.scales = {{scales_.data(), storage.scales, shape}, storage.rows, storage.cols};
    for (int64_t i = 0; i < n * k; ++i) {
      values[static_cast<size_t>(i)] *= piece.scales.At(i / k, i % k);
    }
  }
  Stored(Stored&&) = default;

  Floats values;
  MatrixPiece piece;

 private:
  void StoreCode(int64_t i, float normal, float sigma) {
    std::byte* to = codes_.data();
    switch (storage_.codes) {
      case DType::kF32: {
        const float value = normal * sigma;
        std::memcpy(to + 4 * i, &value, 4);
        return;
      }
      case DType::kBF16: {
        const uint16_t bits = FloatToBf16(normal * sigma);
        std::memcpy(to + 2 * i, &bits, 2);
        return;
      }
      case DType::kF8E4M3:
        to[i] = std::byte{FloatToF8E4M3(normal * 16.0f)};
        return;
      default: {
        // Any code: they are of order 2.
        const auto code = static_cast<unsigned>(std::lround(normal * 1e3f)) & 15u;
        to[i / 2] |= static_cast<std::byte>(code << (i % 2 * 4));
      }
    }
  }
  void StoreScale(int64_t i, float sigma, Rng& rng) {
    if (storage_.scales == DType::kF8E8M0) {
      const int exponent = static_cast<int>(std::floor(std::log2(sigma * 0.5f)));
      scales_[static_cast<size_t>(i)] =
          static_cast<std::byte>(127 + exponent - 1 + static_cast<int>(rng.Below(3)));
      return;
    }
    const float value = sigma / 16.0f * (0.5f + rng.NextFloat());
    std::memcpy(scales_.data() + 4 * i, &value, 4);
  }

  Storage storage_;
  std::vector<std::byte> codes_, scales_;
};

const MoeConfig kQwen = testing::QwenMoe({256, 128, 384});
// Parts of a step's columns, and of a tile's features.
const MoeConfig kGptOss = testing::GptOssMoe({352, 224});
const MoeConfig kV4 = testing::DeepseekV4Moe({384, 256, 256});
const MoeConfig kOdd = {.router = {.score = RouterScore::kSoftmax, .num_experts = 5, .top_k = 2},
                        .hidden_size = 33,
                        .expert_size = 17,
                        .shared_size = 9};

class MoeGpuTest : public testing::GpuTest {
 protected:
  // The layer of a config on the device and as the definition wants it. Experts [begin, end).
  struct Layer {
    MoeConfig config;
    MoeReferenceWeights whole;
    MoeWeights weights;
  };

  PackedMatrix Pack(std::vector<Stored>& pieces, const Storage& storage, Floats& whole) {
    std::vector<MatrixPiece> list;
    for (const Stored& stored : pieces) {
      list.push_back(stored.piece);
      whole.insert(whole.end(), stored.values.begin(), stored.values.end());
    }
    auto packed = PackMatrix(*device_, list, storage.precision);
    EXPECT_TRUE(packed.ok()) << packed.status().message();
    device_->FinishLoading();
    return std::move(packed).value();
  }
  PackedMatrix Pack(const Storage& storage, int64_t n, int64_t k, uint64_t seed, Floats& whole) {
    std::vector<Stored> pieces;
    pieces.emplace_back(storage, n, k, seed);
    return Pack(pieces, storage, whole);
  }
  PackedMatrix PackHalves(const Storage& storage, int64_t f, int64_t k, uint64_t seed,
                          Floats& whole) {
    std::vector<Stored> pieces;
    pieces.emplace_back(storage, f, k, seed);
    pieces.emplace_back(storage, f, k, seed + 1);
    return Pack(pieces, storage, whole);
  }
  Buffer Vector(const Floats& values) { return std::move(ToDevice(values).buffer); }

  Layer MakeLayer(const MoeConfig& config, const Storage& storage, int32_t begin, int32_t end) {
    Layer layer = {.config = config};
    const int64_t h = config.hidden_size, f = config.expert_size, e = config.router.num_experts;
    const Storage wide = {.name = "", .precision = MatmulPrecision::kExact};
    layer.weights.gate = Pack(wide, e, h, 1, layer.whole.gate);
    layer.whole.gate_bias = RandomNormals(static_cast<size_t>(e), 2);
    layer.weights.gate_bias = Vector(layer.whole.gate_bias);
    layer.weights.experts.first = begin;
    for (int32_t i = 0; i < e; ++i) {
      PackedMatrix up =
          PackHalves(storage, f, h, 100 + 10 * static_cast<uint64_t>(i), layer.whole.gate_up);
      PackedMatrix down =
          Pack(storage, h, f, 105 + 10 * static_cast<uint64_t>(i), layer.whole.down);
      if (i < begin || i >= end) continue;
      layer.weights.experts.gate_up.push_back(std::move(up));
      layer.weights.experts.down.push_back(std::move(down));
    }
    if (config.place == RoutingWeightPlace::kAfterDown) AddBiases(layer, begin, end);
    if (config.shared_size > 0 && begin == 0) {
      layer.weights.shared_gate_up =
          PackHalves(storage, config.shared_size, h, 3, layer.whole.shared_gate_up);
      layer.weights.shared_down = Pack(storage, h, config.shared_size, 5, layer.whole.shared_down);
      layer.weights.shared_gate = Pack(wide, 1, h, 6, layer.whole.shared_gate);
    }
    const Status placed = PlaceExperts(*device_, layer.weights.experts);
    EXPECT_TRUE(placed.ok()) << placed.message();
    device_->FinishLoading();
    return layer;
  }
  void AddBiases(Layer& layer, int32_t begin, int32_t end) {
    const int64_t h = layer.config.hidden_size, f = layer.config.expert_size;
    const auto e = static_cast<size_t>(layer.config.router.num_experts);
    layer.whole.gate_up_bias = RandomNormals(e * 2 * static_cast<size_t>(f), 7);
    layer.whole.down_bias = RandomNormals(e * static_cast<size_t>(h), 8);
    const auto part = [&](const Floats& whole, int64_t width) {
      return Vector({whole.begin() + begin * width, whole.begin() + end * width});
    };
    layer.weights.experts.gate_up_bias = part(layer.whole.gate_up_bias, 2 * f);
    layer.weights.experts.down_bias = part(layer.whole.down_bias, h);
  }

  Floats Run(const Layer& layer, const Floats& x, DType dtype) {
    const int64_t h = layer.config.hidden_size, tokens = std::ssize(x) / h;
    const int64_t bytes =
        MoeWorkspaceBytes(layer.config, std::ssize(layer.weights.experts.gate_up), tokens);
    Workspace workspace(Buffer::Allocate(*device_, static_cast<size_t>(bytes)).value());
    const auto device_x = ToDevice(x, dtype);
    const auto out = Poisoned(x.size(), dtype);
    Moe(stream_, workspace,
        {.out = out.View(dtype, {tokens, h}),
         .x = device_x.View(dtype, {tokens, h}),
         .config = &layer.config,
         .weights = &layer.weights});
    EXPECT_EQ(workspace.mark(), 0u);
    return FloatsToHost(out, dtype);
  }
  Floats Reference(const Layer& layer, const Floats& x) {
    Floats out(x.size());
    MoeReference(layer.config, layer.whole, x.data(), nullptr,
                 std::ssize(x) / layer.config.hidden_size, out.data());
    return out;
  }

  void Compare(const MoeConfig& config, const Storage& storage) {
    const DType dtype = storage.precision == MatmulPrecision::kExact ? DType::kF32 : DType::kBF16;
    const Layer layer = MakeLayer(config, storage, 0, config.router.num_experts);
    for (const int64_t tokens : {1, 2, 7, 33, 90, 300}) {
      const Floats x =
          Rounded(RandomNormals(static_cast<size_t>(tokens * config.hidden_size), 9), dtype);
      const Floats got = Run(layer, x, dtype), want = Reference(layer, x);
      // What is added up is as large as the results, which are rounded to the type of the
      // activations twice (units, results) for each of K experts, and at the end.
      double tolerance = dtype == DType::kF32 ? 3e-5 : 6 * Epsilon(dtype);
      // The shared expert meets activations in fp8, rounded to 4 bits; kFp8 rounds weights as well.
      if (storage.codes == DType::kF8E4M3) tolerance = 0.1;
      if (storage.precision == MatmulPrecision::kFp8) tolerance = 0.25;
      const double scale = std::max(1.0, RootMeanSquare(want));
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], tolerance * (scale + std::abs(want[i])))
            << storage.name << ", " << tokens << " tokens, element " << i;
      }
    }
  }
};

TEST_F(MoeGpuTest, ExactModeMatchesTheDefinition) {
  for (const MoeConfig& config : {kQwen, kGptOss, kV4, kOdd}) Compare(config, kExact);
  Compare(kGptOss, kExactFp4);
}
TEST_F(MoeGpuTest, Bf16MatchesTheDefinition) {
  for (const MoeConfig& config : {kQwen, kGptOss, kV4, kOdd}) Compare(config, kBf16);
}
TEST_F(MoeGpuTest, Fp8BlocksMatchTheDefinition) {
  for (const MoeConfig& config : {kQwen, kV4}) Compare(config, kFp8);
}
TEST_F(MoeGpuTest, WeightsThatBecomeFp8StayClose) {
  for (const MoeConfig& config : {kQwen, kGptOss, kV4}) Compare(config, kFp8Rows);
}
TEST_F(MoeGpuTest, Mxfp4MatchesTheDefinition) {
  for (const MoeConfig& config : {kQwen, kGptOss, kV4}) Compare(config, kMxfp4);
}

TEST_F(MoeGpuTest, RanksAddUpToTheLayer) {
  for (const MoeConfig& config : {kQwen, kGptOss, kV4}) {
    const Floats x = RandomNormals(static_cast<size_t>(30 * config.hidden_size), 10);
    const int32_t experts = config.router.num_experts;
    Floats sum(x.size(), 0.0f), want;
    for (const auto& [begin, end] : {std::pair{0, 5}, {5, 6}, {6, experts}, {experts, experts}}) {
      const Layer layer = MakeLayer(config, kExact, begin, end);
      if (begin == 0) want = Reference(layer, x);
      const Floats part = Run(layer, x, DType::kF32);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    for (size_t i = 0; i < sum.size(); ++i)
      ASSERT_NEAR(sum[i], want[i], 3e-5f * (1 + std::abs(want[i])));
  }
}

TEST_F(MoeGpuTest, ExpertsWithoutAKernelAreRefused) {
  ExpertWeights experts;
  Floats whole;
  experts.gate_up.push_back(PackHalves(kBf16, 16, 32, 1, whole));
  experts.gate_up.push_back(PackHalves(kBf16, 24, 32, 1, whole));
  experts.down.push_back(Pack(kBf16, 32, 16, 1, whole));
  EXPECT_EQ(PlaceExperts(*device_, experts).code(), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace hayate::ops
