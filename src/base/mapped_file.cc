#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace hayate {
namespace {

// Closes the descriptor at scope end; a mapping outlives it.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

struct OpenedFile {
  Descriptor descriptor;
  size_t size = 0;
};

Status OpenRegular(const std::filesystem::path& path, OpenedFile& file) {
  file.descriptor.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.descriptor.fd < 0) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    return Error(code, "{}: {}", path.string(), std::strerror(errno));
  }
  struct stat info {};
  if (::fstat(file.descriptor.fd, &info) != 0) {
    return Error(ErrorCode::kIo, "{}: {}", path.string(), std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) {
    return Error(ErrorCode::kInvalidArgument, "{}: not a regular file", path.string());
  }
  file.size = static_cast<size_t>(info.st_size);
  return OkStatus();
}

constexpr size_t kPageBytes = 4096;

}  // namespace

Result<MappedFile> MappedFile::Open(const std::filesystem::path& path) {
  OpenedFile file;
  RETURN_IF_ERROR(OpenRegular(path, file));
  if (file.size == 0) return MappedFile(nullptr, 0, path.string());
  void* data = ::mmap(nullptr, file.size, PROT_READ, MAP_SHARED, file.descriptor.fd, 0);
  if (data == MAP_FAILED) {
    return Error(ErrorCode::kIo, "{}: mmap of {} bytes: {}", path.string(), file.size,
                 std::strerror(errno));
  }
  return MappedFile(static_cast<const std::byte*>(data), file.size, path.string());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::WillNeed(size_t offset, size_t length) const {
  const size_t begin = offset / kPageBytes * kPageBytes;
  ::madvise(const_cast<std::byte*>(data_) + begin, length + (offset - begin), MADV_WILLNEED);
}

void MappedFile::DontNeed(size_t offset, size_t length) const {
  // Only whole pages inside the range, so that neighbours keep theirs.
  const size_t begin = (offset + kPageBytes - 1) / kPageBytes * kPageBytes;
  const size_t end = (offset + length) / kPageBytes * kPageBytes;
  if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

Result<std::string> ReadFile(const std::filesystem::path& path, size_t max_bytes) {
  OpenedFile file;
  RETURN_IF_ERROR(OpenRegular(path, file));
  if (file.size > max_bytes) {
    return Error(ErrorCode::kPayloadTooLarge, "{}: {} bytes, at most {} are read", path.string(),
                 file.size, max_bytes);
  }
  std::string text(file.size, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::read(file.descriptor.fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Error(ErrorCode::kIo, "{}: {}", path.string(), std::strerror(errno));
    if (count == 0) break;  // the file shrank while it was read
    done += static_cast<size_t>(count);
  }
  text.resize(done);
  return text;
}

}  // namespace hayate
