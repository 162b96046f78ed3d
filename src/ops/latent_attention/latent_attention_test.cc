#include "ops/latent_attention/latent_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "tensor/float16.h"

namespace hayate::ops {
namespace {

constexpr int32_t kPageRows = 16;

struct Dims {
  int32_t heads, latent, nope, rope, value;
};
constexpr Dims kSmall = {3, 32, 16, 8, 24};
constexpr Dims kOdd = {2, 40, 12, 4, 20};

TensorView View(std::vector<float>& values, const Shape& shape) {
  return {reinterpret_cast<std::byte*>(values.data()), DType::kF32, shape};
}

// Sequences whose rows are in the cache, and random queries of their last tokens.
class World {
 public:
  // `lengths` and how many of each sequence's last tokens ask.
  World(const Dims& dims, std::vector<std::pair<int32_t, int32_t>> sequences, RowFormat format,
        uint64_t seed)
      : dims_(dims), device_(MakeCpuDevice(0)), rng_(seed) {
    const auto matrix = [&](int64_t n, int64_t k) {
      return Normal(n * k, 1.0f / std::sqrt(static_cast<float>(k)));
    };
    uk_ = matrix(int64_t{dims.heads} * dims.nope, dims.latent);
    uv_ = matrix(int64_t{dims.heads} * dims.value, dims.latent);
    PackProjections();
    int32_t most_pages = 0;
    for (const auto& [length, asking] : sequences) most_pages += length / kPageRows + 1;
    cache_ = {.format = format,
              .page_rows = kPageRows,
              .width = dims.latent + dims.rope,
              .rotary = dims.rope};
    cache_.page_stride = LatentPageBytes(cache_);
    pool_.resize(static_cast<size_t>(cache_.page_stride * most_pages), std::byte{0xFF});
    cache_.base = pool_.data();
    stride_ = most_pages;
    int32_t next_page = most_pages;
    for (const auto& [length, asking] : sequences) {
      std::vector<int32_t> pages(static_cast<size_t>(most_pages), -1);
      for (int32_t position = 0; position < length; ++position) {
        int32_t& page = pages[static_cast<size_t>(position / kPageRows)];
        if (page < 0) page = --next_page;
        const std::vector<float> row = Normal(cache_.width, 1.0f);
        StoreLatentRow(cache_, page, position % kPageRows, row.data());
      }
      page_table_.insert(page_table_.end(), pages.begin(), pages.end());
      for (int32_t i = length - asking; i < length; ++i) positions_.push_back(i);
      q_begin_.push_back(static_cast<int32_t>(positions_.size()));
      kv_len_.push_back(length);
    }
    q_ = Normal(num_tokens() * dims.heads * (dims.nope + dims.rope), 1.0f);
  }

  int64_t num_tokens() const { return std::ssize(positions_); }
  LatentAttentionArgs Args(std::vector<float>& out) {
    out.assign(static_cast<size_t>(num_tokens() * dims_.heads * dims_.value), -5.0f);
    return {.out = View(out, {num_tokens(), dims_.heads, dims_.value}),
            .q = View(q_, {num_tokens(), dims_.heads, dims_.nope + dims_.rope}),
            .positions = positions_.data(),
            .cache = cache_,
            .rows = {.num_rows = static_cast<int32_t>(kv_len_.size()),
                     .q_begin = q_begin_.data(),
                     .kv_len = kv_len_.data(),
                     .page_table = page_table_.data(),
                     .page_table_stride = stride_},
            .scale = 0.2f,
            .projections = &projections_};
  }
  // Tokens [begin, end) of the only sequence, as a step of their own.
  std::vector<float> RunPart(int32_t begin, int32_t end, LatentForm form) {
    std::vector<float> out;
    LatentAttentionArgs args = Args(out);
    const int32_t bounds[] = {0, end - begin};
    const int64_t width = int64_t{dims_.heads} * (dims_.nope + dims_.rope);
    args.q = TensorView{reinterpret_cast<std::byte*>(q_.data() + begin * width),
                        DType::kF32,
                        {end - begin, dims_.heads, dims_.nope + dims_.rope}};
    args.out.shape = {end - begin, dims_.heads, dims_.value};
    args.positions = positions_.data() + begin;
    args.rows.q_begin = bounds;
    args.form = form;
    Run(args);
    out.resize(static_cast<size_t>((end - begin) * dims_.heads * dims_.value));
    return out;
  }
  void Run(const LatentAttentionArgs& args) {
    const int64_t bytes = LatentAttentionWorkspaceBytes(projections_, num_tokens());
    Workspace workspace(Buffer::Allocate(*device_, static_cast<size_t>(bytes)).value());
    LatentAttention({}, workspace, args);
    EXPECT_EQ(workspace.mark(), 0u);
  }
  void Reference(const LatentAttentionArgs& args) { LatentAttentionReference(args, uk_, uv_); }

 private:
  std::vector<float> Normal(int64_t count, float sigma) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = sigma * rng_.NextNormal();
    return values;
  }
  PackedMatrix Pack(std::vector<float>& values, int64_t n, int64_t k) {
    const MatrixPiece piece = MatrixPiece::Whole(View(values, {n, k}));
    return PackMatrix(*device_, {&piece, 1}, MatmulPrecision::kExact).value();
  }
  void PackProjections() {
    const int64_t l = dims_.latent, dn = dims_.nope, dv = dims_.value;
    projections_ = {.num_heads = dims_.heads,
                    .latent_dim = dims_.latent,
                    .nope_dim = dims_.nope,
                    .rope_dim = dims_.rope,
                    .value_dim = dims_.value};
    std::vector<float> expand;
    for (int64_t h = 0; h < dims_.heads; ++h) {
      std::vector<float> turned(static_cast<size_t>(l * dn));
      for (int64_t i = 0; i < l * dn; ++i) {
        turned[static_cast<size_t>(i)] = uk_[static_cast<size_t>((h * dn + i % dn) * l + i / dn)];
      }
      projections_.absorb.push_back(Pack(turned, l, dn));
      const auto uk = uk_.begin() + h * dn * l, uv = uv_.begin() + h * dv * l;
      std::vector<float> value(uv, uv + dv * l);
      projections_.value.push_back(Pack(value, dv, l));
      expand.insert(expand.end(), uk, uk + dn * l);
      expand.insert(expand.end(), uv, uv + dv * l);
    }
    projections_.expand = Pack(expand, dims_.heads * (dn + dv), l);
  }

  const Dims dims_;
  std::unique_ptr<Device> device_;
  Rng rng_;
  std::vector<float> uk_, uv_, q_;
  LatentProjections projections_;
  LatentLayerView cache_;
  std::vector<std::byte> pool_;
  std::vector<int32_t> page_table_, positions_, kv_len_, q_begin_ = {0};
  int32_t stride_ = 0;
};

// Outputs are of order 1 and sums have at most a few hundred terms.
constexpr float kTolerance = 1e-5f;

void ExpectNear(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], kTolerance) << i;
}

TEST(LatentAttention, BothFormsMatchTheDefinition) {
  for (const Dims& dims : {kSmall, kOdd}) {
    for (const RowFormat format : {RowFormat::kF32, RowFormat::kBF16}) {
      World world(dims, {{70, 5}, {1, 1}, {33, 33}, {40, 1}, {9, 0}}, format, 1);
      std::vector<float> got, want;
      LatentAttentionArgs args = world.Args(want);
      world.Reference(args);
      for (const LatentForm form : {LatentForm::kAbsorbed, LatentForm::kMaterialised}) {
        args = world.Args(got);
        args.form = form;
        world.Run(args);
        ExpectNear(got, want);
      }
    }
  }
}

TEST(LatentAttention, AQuerysBitsDoNotDependOnItsStep) {
  for (const LatentForm form : {LatentForm::kAbsorbed, LatentForm::kMaterialised}) {
    World world(kSmall, {{90, 90}}, RowFormat::kF32, 2);
    const std::vector<float> whole = world.RunPart(0, 90, form);
    for (const int32_t chunk : {1, 7, 32, 50}) {
      std::vector<float> parts;
      for (int32_t begin = 0; begin < 90; begin += chunk) {
        const auto part = world.RunPart(begin, std::min(90, begin + chunk), form);
        parts.insert(parts.end(), part.begin(), part.end());
      }
      EXPECT_EQ(parts, whole) << chunk;
    }
  }
}

TEST(LatentAttention, AListAttendsToThoseAlone) {
  World world(kSmall, {{70, 4}, {12, 2}}, RowFormat::kF32, 3);
  std::vector<float> got, want;
  Rng rng(4);
  const int64_t stride = 48;
  std::vector<int32_t> selected(static_cast<size_t>(6 * stride), -1), counts;
  LatentAttentionArgs args = world.Args(want);
  for (int64_t t = 0; t < 6; ++t) {
    int32_t count = 0;
    for (int32_t i = 0; i <= args.positions[t] && count < stride; ++i) {
      if (i == args.positions[t] || rng.Below(2) == 0) {
        selected[static_cast<size_t>(t * stride + count++)] = i;
      }
    }
    counts.push_back(count);
  }
  args.selected = selected.data();
  args.selected_count = counts.data();
  args.selected_stride = stride;
  world.Reference(args);
  args.out = world.Args(got).out;
  world.Run(args);
  ExpectNear(got, want);
}

TEST(LatentAppend, NormsTheLatentAndTurnsTheRest) {
  const auto device = MakeCpuDevice(0);
  Workspace workspace(Buffer::Allocate(*device, size_t{1} << 16).value());
  const int32_t l = 16, r = 4, width = l + r;
  LatentLayerView cache = {.page_rows = 2, .width = width, .rotary = r};
  cache.page_stride = LatentPageBytes(cache);
  std::vector<std::byte> pool(static_cast<size_t>(4 * cache.page_stride));
  cache.base = pool.data();
  Rng rng(5);
  std::vector<float> x(3 * 20), norm(16), cos_sin(3 * 4);
  for (float& value : x) value = rng.NextNormal();
  for (float& value : norm) value = rng.NextNormal();
  for (float& value : cos_sin) value = rng.NextNormal();
  const int32_t positions[] = {3, 4, 0}, q_begin[] = {0, 2, 3}, kv_len[] = {5, 1};
  const int32_t pages[] = {-1, 2, 0, 3, -1, -1};
  LatentAppend({}, workspace,
               {.x = View(x, {3, width}),
                .norm = norm.data(),
                .norm_eps = 1e-6f,
                .cos_sin = cos_sin.data(),
                .positions = positions,
                .cache = cache,
                .rows = {.num_rows = 2,
                         .q_begin = q_begin,
                         .kv_len = kv_len,
                         .page_table = pages,
                         .page_table_stride = 3}});
  const std::pair<int32_t, int32_t> places[] = {{2, 1}, {0, 0}, {3, 0}};
  for (size_t t = 0; t < 3; ++t) {
    std::vector<float> row(20);
    LoadLatentRow(cache, places[t].first, places[t].second, row.data());
    double squares = 0;
    for (size_t i = 0; i < 16; ++i) squares += double{x[t * 20 + i]} * x[t * 20 + i];
    const double factor = 1.0 / std::sqrt(squares / 16 + 1e-6);
    for (size_t i = 0; i < 16; ++i) {
      EXPECT_NEAR(row[i], x[t * 20 + i] * factor * norm[i], 1e-5);
    }
    for (size_t pair = 0; pair < 2; ++pair) {
      const double c = cos_sin[t * 4 + pair], s = cos_sin[t * 4 + 2 + pair];
      const double a = x[t * 20 + 16 + 2 * pair], b = x[t * 20 + 17 + 2 * pair];
      EXPECT_NEAR(row[16 + 2 * pair], a * c - b * s, 1e-5);
      EXPECT_NEAR(row[17 + 2 * pair], a * s + b * c, 1e-5);
    }
  }
}

TEST(LatentAttention, ReadsPackedRows) {
  World world({2, 128, 16, 16, 24}, {{50, 3}, {7, 7}}, RowFormat::kFp8Row, 6);
  std::vector<float> got, want;
  LatentAttentionArgs args = world.Args(want);
  world.Reference(args);
  for (const LatentForm form : {LatentForm::kAbsorbed, LatentForm::kMaterialised}) {
    args = world.Args(got);
    args.form = form;
    world.Run(args);
    ExpectNear(got, want);
  }
}

// The published layout of V3.2: 512 codes, four fp32 scales, 64 bf16, in one row.
TEST(LatentRows, APackedRowOfV32Has656ExactBytes) {
  LatentLayerView cache = {
      .format = RowFormat::kFp8Row, .page_rows = 4, .width = 576, .rotary = 64};
  ASSERT_EQ(RowDataBytes(cache.format, 576, 64) + RowScaleBytes(cache.format, 576, 64), 656);
  cache.page_stride = LatentPageBytes(cache);
  ASSERT_EQ(cache.page_stride, 4 * 656);
  std::vector<std::byte> pool(static_cast<size_t>(2 * cache.page_stride));
  cache.base = pool.data();
  Rng rng(7);
  std::vector<float> x(576), loaded(576);
  for (size_t i = 0; i < x.size(); ++i) x[i] = rng.NextNormal() * (i < 128 ? 1e-6f : 40.0f);
  StoreLatentRow(cache, 1, 2, x.data());
  const std::byte* row = pool.data() + cache.page_stride + 2 * 656;
  for (size_t block = 0; block < 4; ++block) {
    float highest = 1e-4f, scale;
    for (size_t i = block * 128; i < (block + 1) * 128; ++i) {
      highest = std::max(highest, std::fabs(Bf16ToFloat(FloatToBf16(x[i]))));
    }
    std::memcpy(&scale, row + 512 + 4 * block, 4);
    EXPECT_EQ(scale, std::exp2(std::ceil(std::log2(highest / 448.0f)))) << block;
    for (size_t i = block * 128; i < (block + 1) * 128; ++i) {
      EXPECT_EQ(static_cast<uint8_t>(row[i]),
                FloatToF8E4M3(Bf16ToFloat(FloatToBf16(x[i])) / scale));
    }
  }
  for (size_t i = 0; i < 64; ++i) {
    uint16_t bits;
    std::memcpy(&bits, row + 528 + 2 * i, 2);
    EXPECT_EQ(bits, FloatToBf16(x[512 + i]));
  }
  LoadLatentRow(cache, 1, 2, loaded.data());
  for (size_t i = 128; i < 512; ++i) EXPECT_NEAR(loaded[i], x[i], 0.07f * std::fabs(x[i]) + 0.2f);
}

TEST(LatentRows, AnIndexKeyOfV32Takes132Bytes) {
  LatentLayerView keys = {.format = RowFormat::kFp8Key, .page_rows = 4, .width = 128, .rotary = 64};
  EXPECT_EQ(LatentPageBytes(keys), 4 * 132);
  EXPECT_TRUE(HasRowFormat(RowFormat::kFp8Key, 128, 64));
  EXPECT_FALSE(HasRowFormat(RowFormat::kFp8Row, 96, 64));
  keys.page_stride = LatentPageBytes(keys);
  std::vector<std::byte> pool(static_cast<size_t>(keys.page_stride));
  keys.base = pool.data();
  std::vector<float> x(128), loaded(128);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) - 64.0f;
  StoreLatentRow(keys, 0, 3, x.data());
  LoadLatentRow(keys, 0, 3, loaded.data());
  for (size_t i = 0; i < 128; ++i) EXPECT_NEAR(loaded[i], x[i], std::fabs(x[i]) / 16) << i;
}

}  // namespace
}  // namespace hayate::ops
