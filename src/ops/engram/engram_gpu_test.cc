#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/engram/engram.h"
#include "ops/sparse_attention/testing/device_rows.h"

namespace hayate::ops {
namespace {

using testing::HostView;
using testing::RandomNormals;
using testing::TestStep;

constexpr int32_t kPage = 8, kPages = 24, kVocab = 300, kPadding = 2;

class EngramGpuTest : public testing::LatentGpuTest {
 protected:
  // As the model keeps its tables.
  ConstTensorView InHostMemory(const std::vector<uint8_t>& bytes, DType dtype, const Shape& shape) {
    tables_.push_back(Buffer::Allocate(*device_, bytes.size(), MemoryKind::kPinned).value());
    std::memcpy(tables_.back().data(), bytes.data(), bytes.size());
    return TensorView{tables_.back().data(), dtype, shape};
  }
  void TearDown() override {
    tables_.clear();
    LatentGpuTest::TearDown();
  }

  std::vector<Buffer> tables_;
};

// Sequences of several lengths in chunks of any size, over pages out of order: ids are remembered
// and rows gathered as the host does both.
TEST_F(EngramGpuTest, RemembersAndGathersAsTheHostDoes) {
  uint64_t seed = 1;
  for (const auto& [ngram, heads, width] :
       {std::tuple(2, 1, 32), std::tuple(4, 2, 32), std::tuple(3, 5, 96), std::tuple(8, 3, 256)}) {
    const EngramHash hash = MakeEngramHashes({.layers = {1},
                                              .ngram = ngram,
                                              .heads = heads,
                                              .bucket_size = 97,
                                              .compressed_vocab = kVocab})
                                .value()[0];
    Rng rng(seed++);
    std::vector<uint8_t> codes(static_cast<size_t>(hash.num_rows * width)),
        exponents(static_cast<size_t>(hash.num_rows * width / 32));
    // Every code but the two that are NaN.
    for (uint8_t& code : codes) code = static_cast<uint8_t>(rng.Below(0x7F) | rng.Below(2) << 7);
    for (uint8_t& exponent : exponents) exponent = static_cast<uint8_t>(rng.Between(120, 134));
    const Shape rows_shape{hash.num_rows, width}, scales_shape{hash.num_rows, width / 32};
    const ConstTensorView table = InHostMemory(codes, DType::kF8E4M3, rows_shape),
                          scales = InHostMemory(exponents, DType::kF8E8M0, scales_shape);
    const Buffer numbers = PlaceEngramHash(*device_, hash).value();
    std::vector<int32_t> token_map(kVocab);
    for (int32_t& id : token_map) id = static_cast<int32_t>(rng.Below(kVocab));
    const int32_t* placed_map = Placed(token_map);

    constexpr int32_t kSequences = 3, kStride = kPages / kSequences;
    std::vector<int32_t> tables(kPages);
    for (int32_t page = 0; page < kPages; ++page)
      tables[static_cast<size_t>(page)] = page * 7 % kPages;
    std::vector<int32_t> host_pages(kPages * kPage, -1);
    const auto device_pages = Poisoned<int32_t>(host_pages.size());
    std::vector<int32_t> length(kSequences, 0);
    for (int turn = 0; turn < 12; ++turn) {
      std::vector<int32_t> counts;
      for (int32_t& end : length) {
        const auto most = static_cast<uint32_t>(std::min(kStride * kPage - end, 9));
        counts.push_back(static_cast<int32_t>(rng.Below(most + 1)));
        end += counts.back();
      }
      const TestStep step(length, counts);
      if (step.tokens() == 0) continue;
      std::vector<int32_t> tokens(static_cast<size_t>(step.tokens()));
      for (int32_t& token : tokens) token = static_cast<int32_t>(rng.Below(kVocab));
      EngramHistory host = {.base = reinterpret_cast<std::byte*>(host_pages.data()),
                            .page_stride = kPage * sizeof(int32_t),
                            .page_tokens = kPage,
                            .rows = {.num_rows = kSequences,
                                     .q_begin = step.q_begin.data(),
                                     .kv_len = step.kv_len.data(),
                                     .page_table = tables.data(),
                                     .page_table_stride = kStride},
                            .positions = step.positions.data(),
                            .num_tokens = static_cast<int32_t>(step.tokens())};
      EngramHistory device = host;
      device.base = device_pages.buffer.data();
      device.rows = Placed(host.rows, step, tables);
      device.positions = Placed(step.positions);
      EngramRemember({}, host, tokens.data(), token_map.data());
      EngramRemember(stream_, device, Placed(tokens), placed_map);
      std::vector<float> want(tokens.size() * static_cast<size_t>(hash.rows_per_token() * width));
      EngramGatherArgs args = {.out = HostView(want, step.tokens()),
                               .table = table,
                               .scales = scales,
                               .hash = &hash,
                               .numbers = reinterpret_cast<const int64_t*>(numbers.data()),
                               .history = host,
                               .padding = kPadding};
      EngramGather({}, args);
      args.history = device;
      // bf16 holds a code times a power of two without rounding.
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const auto out = Poisoned(want.size(), dtype);
        args.out = out.View(dtype, args.out.shape);
        EngramGather(stream_, args);
        ASSERT_EQ(FloatsToHost(out, dtype), want) << ngram << " tokens, width " << width;
      }
    }
  }
}

TEST_F(EngramGpuTest, TheGateEqualsItsDefinition) {
  for (const int64_t width : {1, 7, 33, 256, 5120}) {
    for (const int64_t tokens : {1, 3, 17}) {
      const auto size = static_cast<size_t>(tokens * width);
      std::vector<float> streams = RandomNormals(4 * size, 1), kv = RandomNormals(5 * size, 2);
      const std::vector<float> q = RandomNormals(static_cast<size_t>(4 * width), 3),
                               k = RandomNormals(static_cast<size_t>(4 * width), 4);
      std::fill_n(kv.begin(), width, 0.0f);  // a key of zeros: the dot product is 0
      const Shape streams_shape{tokens, 4, width}, kv_shape{tokens, 5 * width};
      const auto device_streams = ToDevice(streams), device_kv = ToDevice(kv);
      EngramGate(stream_, {.streams = device_streams.View(DType::kF32, streams_shape),
                           .kv = device_kv.View(DType::kF32, kv_shape),
                           .q_weight = Placed(q),
                           .k_weight = Placed(k)});
      const std::vector<float> got = ToHost(device_streams);
      EngramGateReference(
          {.streams = {reinterpret_cast<std::byte*>(streams.data()), DType::kF32, streams_shape},
           .kv = TensorView{reinterpret_cast<std::byte*>(kv.data()), DType::kF32, kv_shape},
           .q_weight = q.data(),
           .k_weight = k.data()});
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], streams[i], 1e-5f * (1 + std::abs(streams[i])))
            << "width " << width << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace hayate::ops
