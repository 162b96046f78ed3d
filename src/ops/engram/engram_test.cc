#include "ops/engram/engram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ops/sparse_attention/testing/paged_rows.h"
#include "tensor/float16.h"

namespace hayate::ops {
namespace {

using testing::RandomFloats;
using testing::ViewOf;

TEST(Engram, HashesOfTheReleasedModelHaveTheirPublishedNumbers) {
  const auto hashes = MakeEngramHashes({.layers = {1, 14},
                                        .ngram = 4,
                                        .heads = 8,
                                        .bucket_size = 16000000,
                                        .compressed_vocab = 99092})
                          .value();
  using Numbers = std::vector<int64_t>;
  EXPECT_EQ(hashes[0].multipliers,
            (Numbers{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
  EXPECT_EQ(hashes[1].multipliers,
            (Numbers{67716810739261, 51510806800915, 30921347202721, 82619226485591}));
  EXPECT_EQ(hashes[0].sizes[0], 16000057);
  EXPECT_EQ(hashes[0].sizes[7], 16000183);
  EXPECT_EQ(hashes[0].sizes[8], 16000189);
  EXPECT_EQ(hashes[1].sizes[23], 16000889);
  EXPECT_EQ(hashes[0].num_rows, 384006168);
  EXPECT_EQ(hashes[1].num_rows, 384016682);
}

EngramHashConfig Small() {
  return {.layers = {1, 4}, .ngram = 4, .heads = 2, .bucket_size = 97, .compressed_vocab = 200};
}

TEST(Engram, PrimesAreNotUsedTwice) {
  const auto hashes = MakeEngramHashes(Small()).value();
  EXPECT_EQ(hashes[0].sizes, (std::vector<int64_t>{97, 101, 103, 107, 109, 113}));
  EXPECT_EQ(hashes[1].sizes, (std::vector<int64_t>{127, 131, 137, 139, 149, 151}));
  EXPECT_EQ(hashes[1].offsets, (std::vector<int64_t>{0, 127, 258, 395, 534, 683}));
}

TEST(Engram, RefusesNumbersThatCannotWork) {
  for (const auto& change : std::vector<void (*)(EngramHashConfig&)>{
           [](EngramHashConfig& c) { c.ngram = 1; }, [](EngramHashConfig& c) { c.ngram = 9; },
           [](EngramHashConfig& c) { c.heads = 0; },
           [](EngramHashConfig& c) { c.bucket_size = int64_t{1} << 41; },
           [](EngramHashConfig& c) { c.compressed_vocab = 0; }}) {
    EngramHashConfig config = Small();
    change(config);
    EXPECT_EQ(MakeEngramHashes(config).status().code(), ErrorCode::kInvalidArgument);
  }
}

// A table whose rows name themselves.
struct Table {
  explicit Table(int64_t rows) : codes(static_cast<size_t>(rows) * 32), scales(rows, 127) {
    for (int64_t r = 0; r < rows; ++r) {
      // Two digits that E4M3 holds exactly.
      codes[static_cast<size_t>(r) * 32] = FloatToF8E4M3(static_cast<float>(r % 16));
      codes[static_cast<size_t>(r) * 32 + 1] = FloatToF8E4M3(static_cast<float>(r / 16 % 16));
      codes[static_cast<size_t>(r) * 32 + 2] = FloatToF8E4M3(static_cast<float>(r / 256));
    }
  }
  std::vector<uint8_t> codes, scales;
};

TEST(Engram, GathersTheSameRowsHoweverTheTokensWereCut) {
  const EngramHash hash = MakeEngramHashes(Small()).value()[1];
  const Table table(hash.num_rows);
  std::vector<int32_t> token_map(300);
  for (int i = 0; i < 300; ++i) token_map[static_cast<size_t>(i)] = i % 200;
  Rng rng(3);
  std::vector<int32_t> tokens(60);
  for (int32_t& token : tokens) token = static_cast<int32_t>(rng.Below(300));

  for (const int32_t chunk : {60, 1, 2, 7}) {
    constexpr int32_t kPage = 8;
    std::vector<int32_t> pages(8 * kPage, -1);
    const std::vector<int32_t> page_table = {3, 0, 7, 1, 5, 2, 6, 4};
    for (int32_t begin = 0; begin < 60; begin += chunk) {
      const int32_t end = std::min(60, begin + chunk);
      const testing::TestStep step({end}, {end - begin});
      const EngramHistory history = {.base = reinterpret_cast<std::byte*>(pages.data()),
                                     .page_stride = kPage * 4,
                                     .page_tokens = kPage,
                                     .rows = {.num_rows = 1,
                                              .q_begin = step.q_begin.data(),
                                              .kv_len = step.kv_len.data(),
                                              .page_table = page_table.data(),
                                              .page_table_stride = 8},
                                     .positions = step.positions.data()};
      EngramRemember({}, history, tokens.data() + begin, token_map.data());
      std::vector<float> out(static_cast<size_t>((end - begin) * 6 * 32));
      EngramGather({}, {.out = ViewOf(out, {end - begin, 6 * 32}),
                        .table = {reinterpret_cast<const std::byte*>(table.codes.data()),
                                  DType::kF8E4M3, Shape{hash.num_rows, 32}},
                        .scales = {reinterpret_cast<const std::byte*>(table.scales.data()),
                                   DType::kF8E8M0, Shape{hash.num_rows, 1}},
                        .hash = &hash,
                        .history = history,
                        .padding = 2});
      for (int32_t t = begin; t < end; ++t) {
        // The definition, from the whole list of tokens.
        int64_t accumulated = 0;
        for (int32_t s = 0; s < 4; ++s) {
          const int64_t source =
              t >= s ? token_map[static_cast<size_t>(tokens[static_cast<size_t>(t - s)])] : 2;
          accumulated ^= source * hash.multipliers[static_cast<size_t>(s)];
          for (int32_t head = 0; s > 0 && head < 2; ++head) {
            const auto i = static_cast<size_t>((s - 1) * 2 + head);
            const int64_t row = accumulated % hash.sizes[i] + hash.offsets[i];
            const float* values = out.data() + static_cast<size_t>(t - begin) * 6 * 32 + i * 32;
            EXPECT_EQ(values[0] + 16 * values[1] + 256 * values[2], static_cast<float>(row));
          }
        }
      }
    }
  }
}

TEST(Engram, TheGateEqualsItsDefinition) {
  Rng rng(5);
  for (const int64_t width : {1, 7, 33, 256}) {
    constexpr int64_t kTokens = 3;
    std::vector<float> streams = RandomFloats(kTokens * 4 * width, rng);
    const std::vector<float> before = streams;
    std::vector<float> kv = RandomFloats(kTokens * 5 * width, rng);
    const std::vector<float> q = RandomFloats(4 * width, rng), k = RandomFloats(4 * width, rng);
    std::fill_n(kv.begin(), width, 0.0f);  // a key of zeros: the dot product is 0
    EngramGateArgs args = {.streams = ViewOf(streams, {kTokens, 4, width}),
                           .kv = ViewOf(kv, {kTokens, 5 * width}),
                           .q_weight = q.data(),
                           .k_weight = k.data()};
    EngramGate({}, args);
    std::vector<float> expected = before;
    args.streams = ViewOf(expected, {kTokens, 4, width});
    EngramGateReference(args);
    for (size_t i = 0; i < streams.size(); ++i) {
      ASSERT_NEAR(streams[i], expected[i], 1e-5f) << i;
    }
  }
}

}  // namespace
}  // namespace hayate::ops
