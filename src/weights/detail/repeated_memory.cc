#include "weights/detail/repeated_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "base/align.h"
#include "base/check.h"

namespace hayate::weights {

RepeatedMemory::RepeatedMemory(size_t bytes)
    : file_(::memfd_create("hayate-dummy", MFD_CLOEXEC)), bytes_(bytes) {
  CHECK_EQ(bytes % kGranule, 0u);
  CHECK(file_ >= 0 && ::ftruncate(file_, static_cast<off_t>(bytes)) == 0) << bytes;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  CHECK(data != MAP_FAILED) << bytes;
  data_ = static_cast<std::byte*>(data);
}

RepeatedMemory::~RepeatedMemory() {
  if (file_ < 0) return;
  ::munmap(data_, bytes_);
  ::close(file_);
}

RepeatedMemory::View RepeatedMemory::Repeat(size_t bytes) const {
  const size_t length = AlignUp(bytes, kGranule);
  void* reserved = ::mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(reserved != MAP_FAILED) << length;
  auto* begin = static_cast<std::byte*>(reserved);
  for (size_t at = 0; at < length; at += bytes_) {
    const size_t part = std::min(bytes_, length - at);
    void* mapped = ::mmap(begin + at, part, PROT_READ, MAP_SHARED | MAP_FIXED, file_, 0);
    CHECK(mapped != MAP_FAILED) << part;
  }
  return View(begin, length);
}

RepeatedMemory::View::~View() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace hayate::weights
