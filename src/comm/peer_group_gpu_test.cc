#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "comm/peer_group.h"
#include "tensor/buffer.h"
#include "tensor/float16.h"

namespace hayate::comm {
namespace {

// Each rank has a device object of its own, all on GPU 0: their kernels run side by side. Calls
// that wait for the whole GPU (allocations of pinned memory are such) would wait for kernels whose
// partners are not queued yet, so ranks meet on the host between preparing and queueing.
class PeerGroupGpu : public ::testing::Test {
 protected:
  struct Rank {
    std::unique_ptr<Device> device;
    Stream stream;
    std::unique_ptr<Group> group;
  };

  ~PeerGroupGpu() override { Drop(); }

  // The groups first: their memory lies on all devices.
  void Drop() {
    for (Rank& rank : ranks_) rank.group.reset();
    ranks_.clear();
  }

  void Make(int num_ranks) {
    Drop();
    meeting_ = std::make_unique<std::barrier<>>(num_ranks);
    std::vector<Device*> devices;
    for (int r = 0; r < num_ranks; ++r) {
      auto device = MakeCudaDevice({.memory_fraction = 0.02});
      ASSERT_TRUE(device.ok()) << device.status().message();
      ranks_.push_back({.device = std::move(device).value()});
      ranks_.back().stream = ranks_.back().device->NewStream();
      devices.push_back(ranks_.back().device.get());
    }
    auto groups = MakePeerGroup(devices);
    ASSERT_TRUE(groups.ok()) << groups.status().message();
    for (int r = 0; r < num_ranks; ++r) {
      ranks_[static_cast<size_t>(r)].group = std::move(groups.value()[static_cast<size_t>(r)]);
    }
  }
  void OnEveryRank(const std::function<void(Rank&)>& body) {
    std::vector<std::jthread> threads;
    for (Rank& rank : ranks_) threads.emplace_back([&] { body(rank); });
  }

  std::vector<Rank> ranks_;
  std::unique_ptr<std::barrier<>> meeting_;
};

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

// Brings a buffer to the host. Made before the exchange is queued.
class Reader {
 public:
  Reader(Device& device, const Buffer& buffer)
      : device_(device),
        buffer_(buffer),
        pinned_(Buffer::Allocate(device, buffer.size(), MemoryKind::kPinned).value()),
        done_(device.NewEvent()) {}

  std::vector<std::byte> Read(Stream stream) {
    device_.Copy(stream, pinned_.data(), buffer_.data(), buffer_.size());
    device_.Record(done_, stream);
    device_.Synchronize(done_);
    return {pinned_.data(), pinned_.data() + pinned_.size()};
  }

 private:
  Device& device_;
  const Buffer& buffer_;
  const Buffer pinned_;
  const Event done_;
};

TEST_F(PeerGroupGpu, SumsAreTakenInRankOrderAtAnySize) {
  for (const int num_ranks : {1, 2, 4}) {
    Make(num_ranks);
    OnEveryRank([&](Rank& rank) {
      int exchange = 0;
      for (const int64_t count : {8, 64, 4096, 100000, 300000, 1500000, 24}) {
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          const std::vector<std::byte> sent =
              Encoded(Part(rank.group->rank(), ++exchange, count), dtype);
          Buffer data = Buffer::Allocate(*rank.device, sent.size()).value();
          rank.device->Upload(data.data(), sent.data(), sent.size());
          rank.device->FinishLoading();
          Reader reader(*rank.device, data);
          meeting_->arrive_and_wait();
          rank.group->AllReduce(rank.stream, data.View(dtype, {count}));
          const std::vector<std::byte> got = reader.Read(rank.stream);
          meeting_->arrive_and_wait();
          EXPECT_EQ(got, Encoded(Sum(num_ranks, exchange, count), dtype))
              << num_ranks << " ranks, " << count << " of " << Info(dtype).name;
        }
      }
      EXPECT_TRUE(rank.device->status().ok()) << rank.device->status().message();
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

TEST_F(PeerGroupGpu, ASumWithItsNormIsThatOfTheParts) {
  constexpr float kEps = 1e-5f;
  const std::pair<int64_t, int64_t> shapes[] = {{1, 4096}, {3, 72},    {64, 4096}, {100, 2880},
                                                {2, 8192}, {5, 16384}, {255, 4096}};
  for (const int num_ranks : {2, 3}) {
    Make(num_ranks);
    OnEveryRank([&](Rank& rank) {
      int exchange = 0;
      for (const auto& [rows, columns] : shapes) {
        for (const DType dtype : {DType::kF32, DType::kBF16}) {
          if (rows * columns * Info(dtype).block_bytes > kMaxPeerBytes) continue;
          if (columns * Info(dtype).block_bytes > 32768) continue;
          const std::vector<float> weight = Part(7, 0, columns);
          const SumNorm expected =
              ExpectedSumNorm(num_ranks, ++exchange, rows, columns, weight, kEps);
          const auto place = [&](const std::vector<std::byte>& bytes) {
            Buffer buffer = Buffer::Allocate(*rank.device, bytes.size()).value();
            rank.device->Upload(buffer.data(), bytes.data(), bytes.size());
            return buffer;
          };
          const Buffer weights = place(Encoded(weight, DType::kF32));
          const Buffer residual = place(Encoded(Part(99, exchange, rows * columns), DType::kF32));
          const Buffer part =
              place(Encoded(Part(rank.group->rank(), exchange, rows * columns), dtype));
          const Buffer out = place(std::vector<std::byte>(part.size(), std::byte{0xFF}));
          rank.device->FinishLoading();
          Reader residual_reader(*rank.device, residual), out_reader(*rank.device, out);
          const Shape shape{rows, columns};
          meeting_->arrive_and_wait();
          ASSERT_TRUE(rank.group->AllReduceAddNorm(
              rank.stream, {.residual = residual.View(DType::kF32, shape),
                            .part = part.View(dtype, shape),
                            .out = out.View(dtype, shape),
                            .weight = reinterpret_cast<const float*>(weights.data()),
                            .eps = kEps}));
          const std::vector<std::byte> sum = residual_reader.Read(rank.stream);
          const std::vector<std::byte> normed = out_reader.Read(rank.stream);
          meeting_->arrive_and_wait();
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
      EXPECT_TRUE(rank.device->status().ok()) << rank.device->status().message();
    });
  }
}

TEST_F(PeerGroupGpu, GathersPartsOfAnyBytes) {
  constexpr int kRanks = 3;
  Make(kRanks);
  OnEveryRank([&](Rank& rank) {
    for (const int64_t count : {1, 1000, 777777}) {
      const std::vector<float> part = Part(rank.group->rank(), 0, count);
      const size_t bytes = part.size() * sizeof(float);
      Buffer mine = Buffer::Allocate(*rank.device, bytes).value();
      Buffer all = Buffer::Allocate(*rank.device, bytes * kRanks).value();
      rank.device->Upload(mine.data(), part.data(), bytes);
      rank.device->FinishLoading();
      Reader reader(*rank.device, all);
      meeting_->arrive_and_wait();
      rank.group->AllGather(rank.stream, mine.View(DType::kF32, {count}),
                            all.View(DType::kF32, {kRanks, count}));
      const std::vector<std::byte> got = reader.Read(rank.stream);
      meeting_->arrive_and_wait();
      for (int r = 0; r < kRanks; ++r) {
        const std::vector<float> expected = Part(r, 0, count);
        EXPECT_EQ(std::memcmp(got.data() + static_cast<size_t>(r) * bytes, expected.data(), bytes),
                  0)
            << count;
      }
    }
  });
}

TEST_F(PeerGroupGpu, AGraphReplaysItsExchanges) {
  constexpr int kRanks = 2;
  constexpr int64_t kCount = 512;
  Make(kRanks);
  OnEveryRank([&](Rank& rank) {
    const std::vector<float> ones(kCount, 1.0f);
    Buffer data = Buffer::Allocate(*rank.device, sizeof(float) * kCount).value();
    rank.device->Upload(data.data(), ones.data(), data.size());
    rank.device->FinishLoading();
    rank.device->BeginCapture(rank.stream);
    rank.group->AllReduce(rank.stream, data.View(DType::kF32, {kCount}));
    rank.group->Barrier(rank.stream);
    const Graph graph = rank.device->EndCapture(rank.stream);
    Reader reader(*rank.device, data);
    meeting_->arrive_and_wait();
    for (int i = 0; i < 7; ++i) rank.device->Launch(graph, rank.stream);
    const std::vector<std::byte> got = reader.Read(rank.stream);
    meeting_->arrive_and_wait();
    EXPECT_EQ(got, Encoded(std::vector<float>(kCount, 128.0f), DType::kF32));
  });
}

TEST_F(PeerGroupGpu, PoisonReleasesKernelsThatWait) {
  Make(2);
  Rank& rank = ranks_[0];  // the other never comes
  Buffer data = Buffer::Allocate(*rank.device, 4096).value();
  const Event done = rank.device->NewEvent();
  rank.group->AllReduce(rank.stream, data.View(DType::kF32, {1024}));
  rank.device->Record(done, rank.stream);
  ranks_[1].group->Poison();
  rank.device->Synchronize(done);
  EXPECT_TRUE(rank.group->poisoned());
}

}  // namespace
}  // namespace hayate::comm
