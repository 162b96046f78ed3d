#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "comm/peer_group.h"
#include "tensor/buffer.h"
#include "tensor/float16.h"

namespace hayate::comm {
namespace {

// Each rank has a device object of its own, all on GPU 0: their kernels run side by side.
class PeerGroupGpu : public ::testing::Test {
 protected:
  struct Rank {
    std::unique_ptr<Device> device;
    Stream stream;
    std::unique_ptr<Group> group;
  };

  void Make(int num_ranks) {
    ranks_.clear();
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

std::vector<std::byte> ToHost(Device& device, Stream stream, const Buffer& buffer) {
  const Buffer pinned = Buffer::Allocate(device, buffer.size(), MemoryKind::kPinned).value();
  const Event done = device.NewEvent();
  device.Copy(stream, pinned.data(), buffer.data(), buffer.size());
  device.Record(done, stream);
  device.Synchronize(done);
  return {pinned.data(), pinned.data() + pinned.size()};
}

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
          rank.group->AllReduce(rank.stream, data.View(dtype, {count}));
          EXPECT_EQ(ToHost(*rank.device, rank.stream, data),
                    Encoded(Sum(num_ranks, exchange, count), dtype))
              << num_ranks << " ranks, " << count << " of " << Info(dtype).name;
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
      rank.group->AllGather(rank.stream, mine.View(DType::kF32, {count}),
                            all.View(DType::kF32, {kRanks, count}));
      const std::vector<std::byte> got = ToHost(*rank.device, rank.stream, all);
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
    for (int i = 0; i < 7; ++i) rank.device->Launch(graph, rank.stream);
    EXPECT_EQ(ToHost(*rank.device, rank.stream, data),
              Encoded(std::vector<float>(kCount, 128.0f), DType::kF32));
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
