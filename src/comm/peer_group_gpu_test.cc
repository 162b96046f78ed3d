#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "comm/peer_group.h"
#include "comm/testing/ranks_on_one_gpu.h"
#include "tensor/buffer.h"
#include "tensor/float16.h"

namespace hayate::comm {
namespace {

using testing::RanksOnOneGpu;
using testing::Reader;

std::vector<float> Part(int rank, int exchange, int64_t count) {
  Rng rng(static_cast<uint64_t>(rank * 1000 + exchange));
  std::vector<float> part(static_cast<size_t>(count));
  for (float& value : part) value = Bf16ToFloat(FloatToBf16(rng.NextNormal()));
  return part;
}
// In fp32, in rank order, as the group promises.
std::vector<float> Sum(int num_ranks, int exchange, int64_t count) {
  std::vector<float> sum(static_cast<size_t>(count));
  for (int r = 0; r < num_ranks; ++r) {
    const std::vector<float> part = Part(r, exchange, count);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  return sum;
}

std::vector<std::byte> Encoded(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes;
  for (const float value : values) {
    const uint16_t half = FloatToBf16(value);
    const auto* from = dtype == DType::kBF16 ? reinterpret_cast<const std::byte*>(&half)
                                             : reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), from, from + Info(dtype).block_bytes);
  }
  return bytes;
}

TEST(PeerGroupGpu, SumsAreTakenInRankOrderAtAnySize) {
  for (const int num_ranks : {1, 2, 4}) {
    RanksOnOneGpu ranks(num_ranks);
    ranks.OnEveryRank([&](int rank) {
      Device& device = ranks.device(rank);
      int exchange = 0;
      for (const int64_t count : {8, 64, 4096, 100000, 300000, 1500000, 24}) {
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          const std::vector<std::byte> sent = Encoded(Part(rank, ++exchange, count), dtype);
          Buffer data = Buffer::Allocate(device, sent.size()).value();
          device.Upload(data.data(), sent.data(), sent.size());
          device.FinishLoading();
          Reader reader(device, data.size());
          ranks.MeetOnHost();
          ranks.group(rank).AllReduce(ranks.stream(rank), data.View(dtype, {count}));
          const std::vector<std::byte> got =
              reader.Read(ranks.stream(rank), data.data(), data.size());
          ranks.MeetOnHost();
          EXPECT_EQ(got, Encoded(Sum(num_ranks, exchange, count), dtype))
              << num_ranks << " ranks, " << count << " of " << Info(dtype).name;
        }
      }
      EXPECT_TRUE(device.status().ok()) << device.status().message();
    });
  }
}

// The residual that all ranks hold, the parts' sum added to it, and the norm of that.
struct SumNorm {
  std::vector<float> residual, out;
};
SumNorm ExpectedSumNorm(int num_ranks, int exchange, int64_t rows, int64_t columns,
                        const std::vector<float>& weight, float eps) {
  SumNorm expected{Part(99, exchange, rows * columns), {}};
  const std::vector<float> sum = Sum(num_ranks, exchange, rows * columns);
  for (size_t i = 0; i < sum.size(); ++i) expected.residual[i] += sum[i];
  for (int64_t row = 0; row < rows; ++row) {
    const float* x = expected.residual.data() + row * columns;
    double squares = 0.0;
    for (int64_t c = 0; c < columns; ++c) squares += double{x[c]} * x[c];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(columns) + double{eps});
    for (int64_t c = 0; c < columns; ++c) {
      expected.out.push_back(static_cast<float>(x[c] * scale * weight[static_cast<size_t>(c)]));
    }
  }
  return expected;
}

TEST(PeerGroupGpu, ASumWithItsNormIsThatOfTheParts) {
  constexpr float kEps = 1e-5f;
  const std::pair<int64_t, int64_t> shapes[] = {{1, 4096}, {3, 72},    {64, 4096}, {100, 2880},
                                                {2, 8192}, {5, 16384}, {255, 4096}};
  for (const int num_ranks : {2, 3}) {
    RanksOnOneGpu ranks(num_ranks);
    ranks.OnEveryRank([&](int rank) {
      Device& device = ranks.device(rank);
      int exchange = 0;
      for (const auto& [rows, columns] : shapes) {
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          if (rows * columns * Info(dtype).block_bytes > kMaxPeerBytes) continue;
          if (columns * Info(dtype).block_bytes > 32768) continue;
          const std::vector<float> weight = Part(7, 0, columns);
          const SumNorm expected =
              ExpectedSumNorm(num_ranks, ++exchange, rows, columns, weight, kEps);
          const auto place = [&](const std::vector<std::byte>& bytes) {
            Buffer buffer = Buffer::Allocate(device, bytes.size()).value();
            device.Upload(buffer.data(), bytes.data(), bytes.size());
            return buffer;
          };
          const Buffer weights = place(Encoded(weight, DType::kF32));
          const Buffer residual = place(Encoded(Part(99, exchange, rows * columns), DType::kF32));
          const Buffer part = place(Encoded(Part(rank, exchange, rows * columns), dtype));
          const Buffer out = place(std::vector<std::byte>(part.size(), std::byte{0xFF}));
          device.FinishLoading();
          Reader reader(device, residual.size());
          const Shape shape{rows, columns};
          ranks.MeetOnHost();
          ASSERT_TRUE(ranks.group(rank).AllReduceAddNorm(
              ranks.stream(rank), {.residual = residual.View(DType::kF32, shape),
                                   .part = part.View(dtype, shape),
                                   .out = out.View(dtype, shape),
                                   .weight = reinterpret_cast<const float*>(weights.data()),
                                   .eps = kEps}));
          const std::vector<std::byte> sum =
              reader.Read(ranks.stream(rank), residual.data(), residual.size());
          const std::vector<std::byte> normed =
              reader.Read(ranks.stream(rank), out.data(), out.size());
          ranks.MeetOnHost();
          const std::string what = std::to_string(rows) + " x " + std::to_string(columns) + " of " +
                                   std::string(Info(dtype).name);
          for (size_t i = 0; i < expected.out.size(); ++i) {
            float got_residual, got_out;
            std::memcpy(&got_residual, sum.data() + 4 * i, 4);
            if (dtype == DType::kBF16) {
              uint16_t bits;
              std::memcpy(&bits, normed.data() + 2 * i, 2);
              got_out = Bf16ToFloat(bits);
            } else {
              std::memcpy(&got_out, normed.data() + 4 * i, 4);
            }
            const float tolerance = dtype == DType::kBF16 ? 0x1p-8f : 0x1p-18f;
            ASSERT_FLOAT_EQ(got_residual, expected.residual[i]) << what << ", element " << i;
            ASSERT_NEAR(got_out, expected.out[i], tolerance * (0.01f + std::abs(expected.out[i])))
                << what << ", element " << i;
          }
        }
      }
      EXPECT_TRUE(device.status().ok()) << device.status().message();
    });
  }
}

TEST(PeerGroupGpu, GathersPartsOfAnyBytes) {
  constexpr int kRanks = 3;
  RanksOnOneGpu ranks(kRanks);
  ranks.OnEveryRank([&](int rank) {
    Device& device = ranks.device(rank);
    for (const int64_t count : {1, 1000, 777777}) {
      const std::vector<float> part = Part(rank, 0, count);
      const size_t bytes = part.size() * sizeof(float);
      Buffer mine = Buffer::Allocate(device, bytes).value();
      Buffer all = Buffer::Allocate(device, bytes * kRanks).value();
      device.Upload(mine.data(), part.data(), bytes);
      device.FinishLoading();
      Reader reader(device, all.size());
      ranks.MeetOnHost();
      ranks.group(rank).AllGather(ranks.stream(rank), mine.View(DType::kF32, {count}),
                                  all.View(DType::kF32, {kRanks, count}));
      const std::vector<std::byte> got = reader.Read(ranks.stream(rank), all.data(), all.size());
      ranks.MeetOnHost();
      for (int r = 0; r < kRanks; ++r) {
        const std::vector<float> expected = Part(r, 0, count);
        EXPECT_EQ(std::memcmp(got.data() + static_cast<size_t>(r) * bytes, expected.data(), bytes),
                  0)
            << count;
      }
    }
  });
}

TEST(PeerGroupGpu, AGraphReplaysItsExchanges) {
  constexpr int kRanks = 2;
  constexpr int64_t kCount = 512;
  RanksOnOneGpu ranks(kRanks);
  ranks.OnEveryRank([&](int rank) {
    Device& device = ranks.device(rank);
    const std::vector<float> ones(kCount, 1.0f);
    Buffer data = Buffer::Allocate(device, sizeof(float) * kCount).value();
    device.Upload(data.data(), ones.data(), data.size());
    device.FinishLoading();
    device.BeginCapture(ranks.stream(rank));
    ranks.group(rank).AllReduce(ranks.stream(rank), data.View(DType::kF32, {kCount}));
    ranks.group(rank).Barrier(ranks.stream(rank));
    const Graph graph = device.EndCapture(ranks.stream(rank));
    Reader reader(device, data.size());
    ranks.MeetOnHost();
    for (int i = 0; i < 7; ++i) device.Launch(graph, ranks.stream(rank));
    const std::vector<std::byte> got = reader.Read(ranks.stream(rank), data.data(), data.size());
    ranks.MeetOnHost();
    EXPECT_EQ(got, Encoded(std::vector<float>(kCount, 128.0f), DType::kF32));
  });
}

TEST(PeerGroupGpu, PoisonReleasesKernelsThatWait) {
  RanksOnOneGpu ranks(2);
  Device& device = ranks.device(0);  // the other never comes
  Buffer data = Buffer::Allocate(device, 4096).value();
  const Event done = device.NewEvent();
  ranks.group(0).AllReduce(ranks.stream(0), data.View(DType::kF32, {1024}));
  device.Record(done, ranks.stream(0));
  ranks.group(1).Poison();
  device.Synchronize(done);
  EXPECT_TRUE(ranks.group(0).poisoned());
}

}  // namespace
}  // namespace hayate::comm
