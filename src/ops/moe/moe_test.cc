#include "ops/moe/moe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "base/rng.h"
#include "ops/moe/testing/family_configs.h"

namespace hayate::ops {
namespace {

using Floats = std::vector<float>;

Floats Normal(int64_t count, float sigma, Rng& rng) {
  Floats values(static_cast<size_t>(count));
  for (float& value : values) value = sigma * rng.NextNormal();
  return values;
}

// A layer with every part that the config can have, as the definition wants it and packed.
class Layer {
 public:
  Layer(const MoeConfig& layer_config, uint64_t seed, int64_t vocab = 0)
      : config(layer_config), device_(MakeCpuDevice(0)) {
    Rng rng(seed);
    const int64_t h = config.hidden_size, f = config.expert_size, e = config.router.num_experts;
    const float by_h = 1.0f / std::sqrt(static_cast<float>(h)),
                by_f = 1.0f / std::sqrt(static_cast<float>(f));
    whole.gate = Normal(e * h, by_h, rng);
    whole.gate_bias = Normal(e, 0.3f, rng);
    whole.choice_bias = Normal(e, 0.1f, rng);
    whole.gate_up = Normal(e * 2 * f * h, by_h, rng);
    whole.down = Normal(e * h * f, by_f, rng);
    if (config.place == RoutingWeightPlace::kAfterDown) {
      whole.gate_up_bias = Normal(e * 2 * f, 0.2f, rng);
      whole.down_bias = Normal(e * h, 0.2f, rng);
    }
    if (config.shared_size > 0) {
      whole.shared_gate_up = Normal(2 * config.shared_size * h, by_h, rng);
      whole.shared_down = Normal(h * config.shared_size, by_f, rng);
      whole.shared_gate = Normal(h, by_h, rng);
    }
    for (int64_t i = 0; i < vocab * config.router.top_k; ++i) {
      whole.listed.push_back(static_cast<int32_t>(i % e));
    }
  }

  // Experts [begin, end); the shared expert with the first.
  MoeWeights Pack(int32_t begin, int32_t end) {
    const int64_t h = config.hidden_size, f = config.expert_size;
    MoeWeights weights;
    weights.gate = Matrix(whole.gate, 0, config.router.num_experts, h);
    weights.gate_bias = Vector(whole.gate_bias, 0, std::ssize(whole.gate_bias));
    weights.choice_bias = Vector(whole.choice_bias, 0, std::ssize(whole.choice_bias));
    weights.listed = Vector(whole.listed, 0, std::ssize(whole.listed));
    weights.experts.first = begin;
    for (int32_t e = begin; e < end; ++e) {
      weights.experts.gate_up.push_back(Matrix(whole.gate_up, e, 2 * f, h));
      weights.experts.down.push_back(Matrix(whole.down, e, h, f));
    }
    if (!whole.down_bias.empty()) {
      weights.experts.gate_up_bias =
          Vector(whole.gate_up_bias, begin * 2 * f, (end - begin) * 2 * f);
      weights.experts.down_bias = Vector(whole.down_bias, begin * h, (end - begin) * h);
    }
    if (config.shared_size > 0 && begin == 0) {
      weights.shared_gate_up = Matrix(whole.shared_gate_up, 0, 2 * config.shared_size, h);
      weights.shared_down = Matrix(whole.shared_down, 0, h, config.shared_size);
      weights.shared_gate = Matrix(whole.shared_gate, 0, 1, h);
    }
    return weights;
  }

  Floats Run(const MoeWeights& weights, Floats x, const std::vector<int32_t>& ids = {}) {
    const int64_t tokens = std::ssize(x) / config.hidden_size;
    const int64_t experts = std::ssize(weights.experts.gate_up);
    const size_t bytes = static_cast<size_t>(MoeWorkspaceBytes(config, experts, tokens));
    Workspace workspace(Buffer::Allocate(*device_, bytes).value());
    Floats out(x.size(), -3.0f);
    const Shape shape{tokens, config.hidden_size};
    Moe({}, workspace,
        {.out = {reinterpret_cast<std::byte*>(out.data()), DType::kF32, shape},
         .x = TensorView{reinterpret_cast<std::byte*>(x.data()), DType::kF32, shape},
         .token_ids = ids.data(),
         .config = &config,
         .weights = &weights});
    EXPECT_EQ(workspace.mark(), 0u);
    return out;
  }

  Floats Reference(const Floats& x, const std::vector<int32_t>& ids = {}) const {
    Floats out(x.size());
    MoeReference(config, whole, x.data(), ids.empty() ? nullptr : ids.data(),
                 std::ssize(x) / config.hidden_size, out.data());
    return out;
  }

  MoeConfig config;
  MoeReferenceWeights whole;

 private:
  // Matrix `index` of a list of [n, k] matrices.
  PackedMatrix Matrix(const Floats& list, int64_t index, int64_t n, int64_t k) {
    const auto* data = reinterpret_cast<const std::byte*>(list.data() + index * n * k);
    const MatrixPiece piece = MatrixPiece::Whole({data, DType::kF32, {n, k}});
    return PackMatrix(*device_, {&piece, 1}, MatmulPrecision::kExact).value();
  }
  template <typename T>
  Buffer Vector(const std::vector<T>& list, int64_t begin, int64_t count) {
    if (count == 0) return {};
    Buffer buffer = Buffer::Allocate(*device_, static_cast<size_t>(count) * sizeof(T)).value();
    std::memcpy(buffer.data(), list.data() + begin, buffer.size());
    return buffer;
  }

  std::unique_ptr<Device> device_;
};

const MoeConfig kQwen = testing::QwenMoe({40, 24, 32});
const MoeConfig kGptOss = testing::GptOssMoe({33, 17});
const MoeConfig kV4 = testing::DeepseekV4Moe({64, 32, 32});

// Sums of at most H + F products of order 1, in fp32, in different orders.
constexpr float kTolerance = 2e-5f;

void ExpectNear(const Floats& got, const Floats& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], kTolerance) << i;
}

TEST(Moe, MatchesTheDefinition) {
  Rng rng(1);
  for (const MoeConfig& config : {kQwen, kGptOss, kV4}) {
    Layer layer(config, 2);
    const MoeWeights weights = layer.Pack(0, config.router.num_experts);
    for (const int64_t tokens : {0, 1, 2, 7, 200}) {
      const Floats x = Normal(tokens * config.hidden_size, 1.0f, rng);
      ExpectNear(layer.Run(weights, x), layer.Reference(x));
    }
  }
}

TEST(Moe, ListedExpertsFollowTheTokenId) {
  Layer layer(kV4, 3, 10);
  Rng rng(4);
  const Floats x = Normal(5 * kV4.hidden_size, 1.0f, rng);
  const std::vector<int32_t> ids = {9, 0, 3, 3, 7};
  ExpectNear(layer.Run(layer.Pack(0, 16), x, ids), layer.Reference(x, ids));
}

TEST(Moe, RanksAddUpToTheLayer) {
  Rng rng(5);
  for (const MoeConfig& config : {kQwen, kGptOss, kV4}) {
    Layer layer(config, 6);
    const Floats x = Normal(30 * config.hidden_size, 1.0f, rng);
    Floats sum(x.size(), 0.0f);
    const int32_t experts = config.router.num_experts;
    for (const auto& [begin, end] : {std::pair{0, 5}, {5, 6}, {6, experts}, {experts, experts}}) {
      const Floats part = layer.Run(layer.Pack(begin, end), x);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    ExpectNear(sum, layer.Reference(x));
  }
}

TEST(Moe, ATokensBitsDoNotDependOnItsNeighbours) {
  Rng rng(7);
  for (const MoeConfig& config : {kQwen, kGptOss, kV4}) {
    Layer layer(config, 8);
    const MoeWeights weights = layer.Pack(0, config.router.num_experts);
    const int64_t tokens = 150, h = config.hidden_size;
    const Floats x = Normal(tokens * h, 1.0f, rng);
    const Floats together = layer.Run(weights, x);
    for (int64_t t = 0; t < tokens; t += 13) {
      const Floats alone = layer.Run(weights, {x.begin() + t * h, x.begin() + (t + 1) * h});
      ASSERT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + t * h)) << t;
    }
  }
}

// As ranks do whose rows travel: every pair of row and expert is a row of its own, the expert is
// named by its place, and the token's sum is taken afterwards.
TEST(Moe, RowsThatTravelToTheirExpertsHaveTheBitsOfTheWhole) {
  Rng rng(11);
  for (const MoeConfig& config : {kQwen, kGptOss, kV4}) {
    Layer layer(config, 12);
    const int64_t tokens = 90, h = config.hidden_size, k = config.router.top_k;
    Floats x = Normal(tokens * h, 1.0f, rng), out(x.size(), 9.0f);
    Floats pairs, results(static_cast<size_t>(tokens * k * h));
    const MoeWeights weights = layer.Pack(0, config.router.num_experts);
    std::vector<int32_t> chosen(static_cast<size_t>(tokens * k));
    Floats routing(chosen.size());
    const auto device = MakeCpuDevice(0);
    Workspace workspace(Buffer::Allocate(*device, size_t{4} << 20).value());
    const auto view = [&](Floats& values, int64_t width) {
      return TensorView{reinterpret_cast<std::byte*>(values.data()), DType::kF32,
                        Shape{std::ssize(values) / width, width}};
    };
    ChooseExperts({}, workspace,
                  {.x = view(x, h),
                   .config = &config,
                   .weights = &weights,
                   .chosen = chosen.data(),
                   .routing = routing.data()});
    for (int64_t pair = 0; pair < tokens * k; ++pair) {
      pairs.insert(pairs.end(), x.begin() + pair / k * h, x.begin() + (pair / k + 1) * h);
    }
    MoeConfig one = config;
    one.router.top_k = 1;
    RunExpertPairs({}, workspace,
                   {.out = view(results, h),
                    .x = view(pairs, h),
                    .chosen = chosen.data(),
                    .weights = routing.data(),
                    .config = &one,
                    .experts = &weights.experts});
    CombineExperts(
        {}, workspace,
        {.moe = {.out = view(out, h), .x = view(x, h), .config = &config, .weights = &weights},
         .rows = view(results, h),
         .chosen = chosen.data()});
    EXPECT_EQ(out, layer.Run(weights, x));
  }
}

// Experts move between ranks as bytes: here two change places.
TEST(ExpertMemory, WhoseBytesChangePlacesIsComputedThere) {
  for (const MoeConfig& config : {kQwen, kGptOss, kV4}) {
    Layer layer(config, 13);
    Rng rng(14);
    const int32_t experts = config.router.num_experts;
    const MoeWeights weights = layer.Pack(0, experts), moved = layer.Pack(0, experts);
    ASSERT_TRUE(SameLayout(moved.experts, 1, weights.experts, 4));
    const auto a = ExpertMemory(moved.experts, 1), b = ExpertMemory(moved.experts, 4);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(a[i].size(), b[i].size());
      std::ranges::swap_ranges(a[i], b[i]);
    }
    const int64_t h = config.hidden_size;
    Floats x = Normal(4 * h, 1.0f, rng);
    const int32_t chosen[] = {1, 4, 0, experts - 1}, swapped[] = {4, 1, 0, experts - 1};
    const float routing[] = {1, 0.5f, 2, 1};
    MoeConfig single = config;
    single.router.top_k = 1;
    const auto run = [&](const MoeWeights& of, const int32_t* experts_of) {
      Floats out(x.size());
      const auto device = MakeCpuDevice(0);
      Workspace workspace(Buffer::Allocate(*device, size_t{1} << 20).value());
      RunExperts({}, workspace,
                 {.out = {reinterpret_cast<std::byte*>(out.data()), DType::kF32, {4, h}},
                  .x = TensorView{reinterpret_cast<std::byte*>(x.data()), DType::kF32, {4, h}},
                  .chosen = experts_of,
                  .weights = routing,
                  .config = &single,
                  .experts = &of.experts});
      return out;
    };
    EXPECT_EQ(run(moved, swapped), run(weights, chosen));
    EXPECT_NE(run(moved, chosen), run(weights, chosen));
  }
}

TEST(ExpertMemory, ExpertsOfOtherTypesAreOfAnotherLayout) {
  MoeConfig wider = kQwen;
  wider.expert_size += 8;
  Layer one(kQwen, 15), other(wider, 15);
  const MoeWeights a = one.Pack(0, 2), b = other.Pack(0, 2);
  EXPECT_TRUE(SameLayout(a.experts, 0, a.experts, 1));
  EXPECT_FALSE(SameLayout(a.experts, 0, b.experts, 0));
}

TEST(RunExperts, SkipsExpertsOfOtherRanks) {
  Layer layer(kGptOss, 9);
  const MoeWeights weights = layer.Pack(2, 4);
  Rng rng(10);
  Floats x = Normal(2 * 33, 1.0f, rng), out(x.size(), 1.0f);
  const int32_t chosen[] = {0, 1, 5, 7, 0, 1, 2, 7};
  const float routing[] = {1, 1, 1, 1, 1, 1, 0.5f, 1};
  const auto device = MakeCpuDevice(0);
  Workspace workspace(Buffer::Allocate(*device, size_t{1} << 20).value());
  RunExperts({}, workspace,
             {.out = {reinterpret_cast<std::byte*>(out.data()), DType::kF32, {2, 33}},
              .x = TensorView{reinterpret_cast<std::byte*>(x.data()), DType::kF32, {2, 33}},
              .chosen = chosen,
              .weights = routing,
              .config = &layer.config,
              .experts = &weights.experts});
  EXPECT_TRUE(std::all_of(out.begin(), out.begin() + 33, [](float v) { return v == 0.0f; }));
  EXPECT_TRUE(std::any_of(out.begin() + 33, out.end(), [](float v) { return v != 0.0f; }));
}

}  // namespace
}  // namespace hayate::ops
