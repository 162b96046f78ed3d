#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/rng.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

namespace hayate {
namespace {

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = MakeCudaDevice({.memory_fraction = 0.1});
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = std::move(device).value();
  }
  std::unique_ptr<Device> device_;
};

std::vector<uint64_t> RandomWords(size_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<uint64_t> words(count);
  for (uint64_t& word : words) word = rng.NextU64();
  return words;
}

TEST_F(CudaDeviceTest, AnUploadOfAnyLengthArrivesWhole) {
  for (const size_t words : {size_t{1}, size_t{1000}, size_t{5'000'000}, size_t{20'000'003}}) {
    const std::vector<uint64_t> sent = RandomWords(words, words);
    const size_t bytes = words * sizeof(uint64_t);
    Buffer memory = Buffer::Allocate(*device_, bytes).value();
    Buffer back = Buffer::Allocate(*device_, bytes, MemoryKind::kPinned).value();
    device_->Upload(memory.data(), sent.data(), bytes);
    device_->Copy(device_->load_stream(), back.data(), memory.data(), bytes);
    device_->FinishLoading();
    EXPECT_EQ(std::memcmp(back.data(), sent.data(), bytes), 0) << words;
  }
  EXPECT_TRUE(device_->status().ok());
}

TEST_F(CudaDeviceTest, MemoryThatIsNotThereIsRefusedWithTheFlagThatHelps) {
  const size_t free = device_->free_bytes();
  const auto refused = Buffer::Allocate(*device_, free + 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), ErrorCode::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("--mem-fraction-static"), std::string::npos);
  { const Buffer all = Buffer::Allocate(*device_, free - 1024).value(); }
  EXPECT_EQ(device_->free_bytes(), free);
}

TEST_F(CudaDeviceTest, AnEventOfOneStreamIsWaitedForByAnother) {
  constexpr size_t kBytes = size_t{64} << 20;
  Buffer pinned = Buffer::Allocate(*device_, kBytes, MemoryKind::kPinned).value();
  Buffer memory = Buffer::Allocate(*device_, kBytes).value();
  Buffer back = Buffer::Allocate(*device_, kBytes, MemoryKind::kPinned).value();
  std::memset(pinned.data(), 0x5a, kBytes);
  std::memset(back.data(), 0, kBytes);
  const Stream first = device_->NewStream(), second = device_->NewStream();
  const Event sent = device_->NewEvent(), done = device_->NewEvent();
  device_->Copy(first, memory.data(), pinned.data(), kBytes);
  device_->Record(sent, first);
  device_->Wait(second, sent);
  device_->Copy(second, back.data(), memory.data(), kBytes);
  device_->Record(done, second);
  device_->Synchronize(done);
  EXPECT_EQ(std::memcmp(back.data(), pinned.data(), kBytes), 0);
}

}  // namespace
}  // namespace hayate
