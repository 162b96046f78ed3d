#include "exec/weight_places.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "base/error.h"

namespace hayate::exec {
namespace {

// Carves device memory from the bottom of one piece as a GPU's device does: what comes back before
// the last piece is lost. Counts what is out.
class CarvedDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string name() const override { return "carved"; }
  Result<void*> Allocate(size_t bytes, MemoryKind kind) override {
    if (kind == MemoryKind::kDevice && bytes > free_bytes()) {
      return Status(ErrorCode::kResourceExhausted, "full");
    }
    void* at = kind == MemoryKind::kPinned ? ::operator new(bytes) : memory_.data() + used_;
    if (kind == MemoryKind::kDevice) used_ += bytes;
    out_[at] = bytes;
    return at;
  }
  void Free(void* pointer, size_t bytes, MemoryKind kind) override {
    ASSERT_EQ(out_.count(pointer), 1u) << "comes back twice";
    EXPECT_EQ(out_[pointer], bytes);
    out_.erase(pointer);
    if (kind == MemoryKind::kPinned) return ::operator delete(pointer);
    if (static_cast<std::byte*>(pointer) + bytes == memory_.data() + used_) used_ -= bytes;
  }
  size_t num_out() const { return out_.size(); }

  Stream NewStream() override { return {}; }
  Event NewEvent() override { return {}; }
  void Record(Event, Stream) override {}
  void Wait(Stream, Event) override {}
  void Synchronize(Event) override {}
  void Copy(Stream, void*, const void*, size_t) override {}
  void BeginCapture(Stream) override {}
  Graph EndCapture(Stream) override { return {}; }
  void Launch(Graph, Stream) override {}
  void Discard(Graph) override {}
  void Upload(void*, const void*, size_t) override {}
  Stream load_stream() override { return {}; }
  void FinishLoading() override {}
  size_t free_bytes() const override { return memory_.size() - used_; }
  Status status() const override { return OkStatus(); }
  void Fail(Status) override {}

 private:
  std::vector<std::byte> memory_ = std::vector<std::byte>(1 << 20);
  size_t used_ = 0;
  std::map<void*, size_t> out_;
};

Buffer Take(Device& device, size_t bytes, MemoryKind kind = MemoryKind::kDevice) {
  return Buffer::Allocate(device, bytes, kind).value();
}

// As a model loads: matrices that stay, each through a chunk of its own, and a table on the host.
std::vector<Buffer> LoadModel(Device& device) {
  std::vector<Buffer> stay;
  for (const size_t bytes : {4096u, 1024u, 8192u}) {
    stay.push_back(Take(device, bytes));
    const Buffer chunk = Take(device, 2048);
    const Buffer pinned = Take(device, 512, MemoryKind::kPinned);
    const Buffer scales = Take(device, 256);
  }
  stay.push_back(Take(device, 4096, MemoryKind::kPinned));
  return stay;
}

std::vector<void*> AddressesOf(const std::vector<Buffer>& buffers) {
  std::vector<void*> addresses;
  for (const Buffer& buffer : buffers) addresses.push_back(buffer.data());
  return addresses;
}

TEST(WeightPlaces, EveryLoadingFindsThePlacesOfTheFirst) {
  CarvedDevice device;
  WeightPlaces places(device);
  auto served = std::make_unique<std::vector<Buffer>>(LoadModel(places));
  const std::vector<void*> first = AddressesOf(*served);
  ASSERT_TRUE(places.Keep().ok());
  const size_t free = device.free_bytes(), out = device.num_out();
  for (int round = 0; round < 3; ++round) {
    places.Rewind();
    auto loaded = std::make_unique<std::vector<Buffer>>(LoadModel(places));
    EXPECT_EQ(AddressesOf(*loaded), first);
    served = std::move(loaded);
    EXPECT_EQ(device.free_bytes(), free);
    EXPECT_EQ(device.num_out(), out);
  }
}

TEST(WeightPlaces, WhatALoadingNeedsForAWhileLiesInNoPlaceOfAnother) {
  CarvedDevice device;
  WeightPlaces places(device);
  const std::vector<Buffer> served = LoadModel(places);
  ASSERT_TRUE(places.Keep().ok());
  const Buffer other = Take(device, 4096);  // a pool, behind the weights
  places.Rewind();
  const Buffer matrix = Take(places, 4096);
  const Buffer chunk = Take(places, 2048);
  const Buffer pinned = Take(places, 512, MemoryKind::kPinned);
  const Buffer scales = Take(places, 256);
  const auto apart = [](const Buffer& a, const Buffer& b) {
    return a.data() + a.size() <= b.data() || b.data() + b.size() <= a.data();
  };
  EXPECT_TRUE(apart(chunk, scales));
  for (const Buffer* temporary : {&chunk, &scales}) {
    EXPECT_TRUE(apart(*temporary, other));
    for (const Buffer& buffer : served) EXPECT_TRUE(apart(*temporary, buffer));
  }
}

TEST(WeightPlaces, ALoadingThatAsksForSomethingElseIsRefusedAndTheNextOneFindsItsPlaces) {
  CarvedDevice device;
  WeightPlaces places(device);
  const std::vector<Buffer> served = LoadModel(places);
  const std::vector<void*> first = AddressesOf(served);
  ASSERT_TRUE(places.Keep().ok());
  EXPECT_FALSE(Buffer::Allocate(places, 4096).ok()) << "no loading is under way";
  places.Rewind();
  {
    const Buffer matrix = Take(places, 4096);
    const Buffer chunk = Take(places, 2048);
    const auto another = Buffer::Allocate(places, 2048);
    EXPECT_EQ(another.status().code(), ErrorCode::kInvalidArgument);
  }
  places.Rewind();
  EXPECT_EQ(AddressesOf(LoadModel(places)), first);
  EXPECT_FALSE(Buffer::Allocate(places, 4096).ok()) << "more than the first loading asked for";
}

TEST(WeightPlaces, ChunksThatOutliveTheirTurnAreRefusedAndNotOverrun) {
  CarvedDevice device;
  WeightPlaces places(device);
  const std::vector<Buffer> served = LoadModel(places);
  ASSERT_TRUE(places.Keep().ok());
  places.Rewind();
  std::vector<Buffer> held;
  Status refused;
  for (const size_t bytes : {4096u, 1024u}) {
    held.push_back(Take(places, bytes));
    auto chunk = Buffer::Allocate(places, 2048);
    if (!chunk.ok()) {
      refused = chunk.status();
      break;
    }
    held.push_back(*std::move(chunk));
    held.push_back(Take(places, 512, MemoryKind::kPinned));
    held.push_back(Take(places, 256));
  }
  EXPECT_EQ(refused.code(), ErrorCode::kInvalidArgument) << refused.message();
}

TEST(WeightPlaces, GiveEverythingBackAtTheEnd) {
  CarvedDevice device;
  {
    WeightPlaces places(device);
    const std::vector<Buffer> served = LoadModel(places);
    ASSERT_TRUE(places.Keep().ok());
  }
  EXPECT_EQ(device.num_out(), 0u);
}

TEST(WeightPlaces, ALoadingThatFailsLeavesThePlacesToTheNextOrToNobody) {
  CarvedDevice device;
  {
    WeightPlaces places(device);
    const Buffer matrix = Take(places, 4096);
    const Buffer chunk = Take(places, 2048);
    EXPECT_FALSE(Buffer::Allocate(places, 2 << 20).ok());
  }
  EXPECT_EQ(device.num_out(), 0u);
}

}  // namespace
}  // namespace hayate::exec
