#pragma once
// Memory of a few megabytes that can be seen as a much longer stretch of addresses, in which it
// repeats.

#include <cstddef>
#include <utility>

namespace hayate::weights {

class RepeatedMemory {
 public:
  // `bytes` is a multiple of kGranule. Running out of memory for it is fatal: CHECK.
  explicit RepeatedMemory(size_t bytes);
  RepeatedMemory(RepeatedMemory&& other) noexcept
      : file_(std::exchange(other.file_, -1)), bytes_(other.bytes_), data_(other.data_) {}
  RepeatedMemory& operator=(RepeatedMemory&&) = delete;
  ~RepeatedMemory();

  static constexpr size_t kGranule = 4096;

  // The memory itself, for whoever fills it.
  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

  // A stretch of addresses that outlives the memory it shows.
  class View {
   public:
    View(View&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
    View& operator=(View&&) = delete;
    ~View();
    const std::byte* data() const { return data_; }

   private:
    friend class RepeatedMemory;
    View(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}
    std::byte* data_;
    size_t bytes_;
  };
  // Read-only; byte i shows byte i % size() of the memory.
  View Repeat(size_t bytes) const;

 private:
  int file_;
  size_t bytes_;
  std::byte* data_;
};

}  // namespace hayate::weights
