#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "base/align.h"
#include "base/error.h"
#include "tensor/cpu_features.h"
#include "tensor/device.h"

namespace hayate {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kCacheLineBytes = 64;

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int index) : index_(index) {}

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string name() const override {
    return fmt::format("cpu{} ({})", index_, ToString(DetectCpuFeatures()));
  }

  Result<void*> Allocate(size_t bytes, MemoryKind) override {
    const bool huge = bytes >= kHugePageBytes;
    const size_t alignment = huge ? kHugePageBytes : kCacheLineBytes;
    void* pointer = std::aligned_alloc(alignment, AlignUp(bytes, alignment));
    if (pointer == nullptr) {
      return Error(ErrorCode::kResourceExhausted, "cannot allocate {} bytes of host memory", bytes);
    }
    // Fewer TLB misses while streaming weights; a refusal changes nothing but speed.
    if (huge) ::madvise(pointer, AlignUp(bytes, alignment), MADV_HUGEPAGE);
    return pointer;
  }
  void Free(void* pointer, size_t, MemoryKind) override { std::free(pointer); }

  Stream NewStream() override { return {this, nullptr}; }
  Event NewEvent() override { return {}; }
  void Record(Event, Stream) override {}
  void Wait(Stream, Event) override {}
  void Synchronize(Event) override {}
  void Copy(Stream, void* to, const void* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

 private:
  int index_;
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(int index) { return std::make_unique<CpuDevice>(index); }

}  // namespace hayate
