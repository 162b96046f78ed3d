#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/align.h"
#include "base/check.h"
#include "base/error.h"
#include "tensor/cpu_features.h"
#include "tensor/device.h"

namespace hayate {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kCacheLineBytes = 64;
// Smaller allocations (the weights of small models) share arenas of this size, so that they too lie
// on huge pages: streaming weights then misses the TLB, and stops the prefetcher, 512 times less
// often.
constexpr size_t kArenaBytes = size_t{16} << 20;

// Advice only: a refusal changes nothing but speed.
void AdviseHugePages(void* pointer, size_t bytes) { ::madvise(pointer, bytes, MADV_HUGEPAGE); }

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int index) : index_(index) {}
  ~CpuDevice() override {
    for (std::byte* arena : arenas_) std::free(arena);
  }

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string name() const override {
    return fmt::format("cpu{} ({})", index_, ToString(DetectCpuFeatures()));
  }

  Result<void*> Allocate(size_t bytes, MemoryKind) override {
    if (bytes < kHugePageBytes) return AllocateSmall(AlignUp(bytes, kCacheLineBytes));
    void* pointer = std::aligned_alloc(kHugePageBytes, AlignUp(bytes, kHugePageBytes));
    if (pointer == nullptr) return OutOfMemory(bytes);
    AdviseHugePages(pointer, AlignUp(bytes, kHugePageBytes));
    return pointer;
  }
  // Small pieces come back with their arena, when the device ends.
  void Free(void* pointer, size_t bytes, MemoryKind) override {
    if (bytes >= kHugePageBytes) std::free(pointer);
  }

  Stream NewStream() override { return {this, nullptr}; }
  Event NewEvent() override { return {}; }
  void Record(Event, Stream) override {}
  void Wait(Stream, Event) override {}
  void Synchronize(Event) override {}
  void Copy(Stream, void* to, const void* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  void BeginCapture(Stream) override {}
  Graph EndCapture(Stream) override { return {}; }
  void Launch(Graph, Stream) override { CHECK(false) << "no graph was captured"; }
  void Discard(Graph) override {}

  void Upload(void* to, const void* from, size_t bytes) override { Copy({}, to, from, bytes); }
  Stream load_stream() override { return NewStream(); }
  void FinishLoading() override {}
  size_t free_bytes() const override {
    return static_cast<size_t>(::sysconf(_SC_AVPHYS_PAGES)) *
           static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  }

  // Host memory does not fail in a way that the process outlives.
  Status status() const override { return OkStatus(); }
  void Fail(Status failure) override { CHECK(false) << failure.message(); }

 private:
  static Status OutOfMemory(size_t bytes) {
    return Error(ErrorCode::kResourceExhausted,
                 "cannot allocate {} bytes of host memory; --max-total-tokens and "
                 "--mem-fraction-static bound the KV pool",
                 bytes);
  }

  Result<void*> AllocateSmall(size_t bytes) {
    if (arenas_.empty() || arena_used_ + bytes > kArenaBytes) {
      auto* arena = static_cast<std::byte*>(std::aligned_alloc(kHugePageBytes, kArenaBytes));
      if (arena == nullptr) return OutOfMemory(bytes);
      AdviseHugePages(arena, kArenaBytes);
      arenas_.push_back(arena);
      arena_used_ = 0;
    }
    std::byte* pointer = arenas_.back() + arena_used_;
    arena_used_ += bytes;
    return static_cast<void*>(pointer);
  }

  int index_;
  std::vector<std::byte*> arenas_;
  size_t arena_used_ = 0;  // of the last arena
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(int index) { return std::make_unique<CpuDevice>(index); }

}  // namespace hayate
