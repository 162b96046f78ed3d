// The tile kernels on a tile unit that is plain arithmetic, so that their indexing, tile shapes and
// sums are tested on any CPU with AVX-512. Only TileUnit's own instructions need AMX to run.

#include "ops/matmul/amx/int8_tiles.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "ops/matmul/avx512/kernels.h"
#include "ops/matmul/testing/random_weights.h"

namespace hayate::ops::matmul::amx {
namespace {

// What Intel's manual says the instructions do, and what they would fault on.
class PlainTileUnit {
 public:
  void Configure(const TileConfig& config) {
    EXPECT_FALSE(configured_);
    ASSERT_EQ(config.palette, 1);
    for (int i = 0; i < kNumTiles; ++i) {
      ASSERT_LE(config.rows[i], kMaxTileRows);
      ASSERT_LE(config.row_bytes[i], kMaxTileRowBytes);
    }
    config_ = config;
    configured_ = true;
  }
  void Release() {
    EXPECT_TRUE(configured_);
    configured_ = false;
  }
  bool configured() const { return configured_; }

  template <int kTile>
  void Load(const void* base, int64_t stride) {
    CheckTile(kTile);
    std::memset(tiles_[kTile], 0, sizeof(tiles_[kTile]));
    for (int r = 0; r < config_.rows[kTile]; ++r) {
      std::memcpy(tiles_[kTile][r], static_cast<const std::byte*>(base) + r * stride,
                  config_.row_bytes[kTile]);
    }
  }
  template <int kTile>
  void Store(void* base, int64_t stride) {
    CheckTile(kTile);
    for (int r = 0; r < config_.rows[kTile]; ++r) {
      std::memcpy(static_cast<std::byte*>(base) + r * stride, tiles_[kTile][r],
                  config_.row_bytes[kTile]);
    }
  }
  template <int kTile>
  void Zero() {
    CheckTile(kTile);
    std::memset(tiles_[kTile], 0, sizeof(tiles_[kTile]));
  }
  template <int kSums, int kA, int kB>
  void DotSignedUnsigned() {
    for (const int tile : {kSums, kA, kB}) CheckTile(tile);
    ASSERT_EQ(config_.rows[kSums], config_.rows[kA]);
    ASSERT_EQ(config_.row_bytes[kSums], config_.row_bytes[kB]);
    ASSERT_EQ(config_.row_bytes[kA], 4 * config_.rows[kB]);
    for (int m = 0; m < config_.rows[kSums]; ++m) {
      for (int n = 0; n < config_.row_bytes[kSums] / 4; ++n) {
        int32_t sum;
        std::memcpy(&sum, &tiles_[kSums][m][4 * n], sizeof(sum));
        for (int i = 0; i < config_.row_bytes[kA]; ++i) {
          sum += static_cast<int8_t>(tiles_[kA][m][i]) * int{tiles_[kB][i / 4][4 * n + i % 4]};
        }
        std::memcpy(&tiles_[kSums][m][4 * n], &sum, sizeof(sum));
      }
    }
  }

 private:
  static constexpr int kNumTiles = 8;
  void CheckTile(int tile) const {
    ASSERT_TRUE(configured_);
    ASSERT_LT(tile, kNumTiles);
    ASSERT_GT(config_.rows[tile], 0);
  }

  TileConfig config_;
  bool configured_ = false;
  uint8_t tiles_[kNumTiles][kMaxTileRows][kMaxTileRowBytes] = {};
};

std::vector<uint32_t> BitsOf(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

constexpr DType kBlockDTypes[] = {DType::kQ4_0, DType::kQ4_1,   DType::kQ5_0,  DType::kQ5_1,
                                  DType::kQ8_0, DType::kIQ4_NL, DType::kMXFP4, DType::kQ2_K,
                                  DType::kQ3_K, DType::kQ4_K,   DType::kQ5_K,  DType::kQ6_K};

class AmxTiles : public testing::Test {
 protected:
  void SetUp() override {
    if (!DetectCpuFeatures().avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  }

  // `wide` output rows, of which the first n are written.
  struct Product {
    std::vector<float> out;
    bool released = false;
  };
  Product Run(DType dtype, int64_t n, int64_t k, int64_t t, const float* bias, bool on_tiles) {
    const RandomWeights weights(dtype, n, k, static_cast<uint64_t>(n + k));
    const auto device = MakeCpuDevice(0);
    const MatrixPiece piece = MatrixPiece::Whole(weights.view());
    const PackedMatrix packed =
        PackMatrixFor(PlainKernels(), *device, {&piece, 1}, MatmulPrecision::kFast).value();
    Rng rng(static_cast<uint64_t>(t));
    std::vector<float> x(static_cast<size_t>(t * k));
    for (float& value : x) value = rng.NextNormal();
    std::vector<int8_t> xq(x.size());
    std::vector<BlockMeta> meta(x.size() / kBlock);
    PlainKernels().quantize(x.data(), t, k, xq.data(), meta.data());
    const int64_t stride = n + 3;
    Product product{std::vector<float>(static_cast<size_t>(t * stride), -7.0f)};
    const KernelArgs args{.tiles = packed.storage.data() + packed.parts[0].offset,
                          .n = n,
                          .k = k,
                          .t = t,
                          .x = x.data(),
                          .x_bf16 = nullptr,
                          .xq = xq.data(),
                          .meta = meta.data(),
                          .out = product.out.data(),
                          .out_stride = stride,
                          .bias = bias};
    const Layout layout = static_cast<Layout>(packed.parts[0].layout);
    if (on_tiles) {
      PlainTileUnit unit;
      EXPECT_EQ(RunTiles(unit, layout, args), t / kTileTokens * kTileTokens);
      EXPECT_FALSE(unit.configured());
    } else {
      KernelArgs whole = args;
      whole.t = t / kTileTokens * kTileTokens;
      avx512::RunInt8(layout, whole);
    }
    return product;
  }
};

TEST_F(AmxTiles, GiveTheBitsOfTheAvx512Kernels) {
  for (const DType dtype : kBlockDTypes) {
    const int64_t unit = Info(dtype).block_elements;
    for (const int64_t n : {1, 16, 33}) {
      for (const int64_t k : {unit, 3 * unit, kPartBlocks * kBlock + unit}) {
        for (const int64_t t : {0, 15, 16, 40}) {
          std::vector<float> bias(static_cast<size_t>(n));
          for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i) * 0.1f;
          for (const float* added : std::initializer_list<const float*>{nullptr, bias.data()}) {
            const Product tiles = Run(dtype, n, k, t, added, true);
            const Product vectors = Run(dtype, n, k, t, added, false);
            ASSERT_EQ(BitsOf(tiles.out), BitsOf(vectors.out))
                << Info(dtype).name << " n " << n << " k " << k << " t " << t;
          }
        }
      }
    }
  }
}

TEST_F(AmxTiles, TheConfigurationIsWhatTheHardwareReads) {
  const TileConfig config = MakeTileConfig();
  uint8_t bytes[64];
  std::memcpy(bytes, &config, sizeof(bytes));
  EXPECT_EQ(bytes[0], 1);                // palette
  EXPECT_EQ(bytes[1], 0);                // start row
  EXPECT_EQ(bytes[16 + 2 * kSums], 64);  // bytes of a row, 16 bits each
  EXPECT_EQ(bytes[16 + 2 * kActivations], 32);
  EXPECT_EQ(bytes[16 + 2 * kHalfActivations], 16);
  EXPECT_EQ(bytes[48 + kSums], 16);  // rows
  EXPECT_EQ(bytes[48 + kCodes], 8);
  EXPECT_EQ(bytes[48 + kHalfCodes], 4);
  EXPECT_EQ(bytes[16 + 2 * 6], 0);  // tiles beyond are not used
}

}  // namespace
}  // namespace hayate::ops::matmul::amx
