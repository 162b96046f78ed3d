#pragma once
// Copies pageable host memory (mapped checkpoint files) to the device at the rate of the link: a
// few threads fill pinned chunks while earlier chunks travel.

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <memory>

#include "base/status.h"
#include "base/thread_pool.h"
#include "tensor/device.h"

namespace hayate::cuda {

class Uploader {
 public:
  // `device` must be current on the calling thread, and outlive the uploader.
  static Result<std::unique_ptr<Uploader>> Create(Device& device, cudaStream_t stream);
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  // Queues the copy on the stream; `from` has been read when this returns. One thread at a time.
  void Upload(void* to, const void* from, size_t bytes);

 private:
  Uploader(Device& device, cudaStream_t stream);
  void Fill(std::byte* chunk, const std::byte* from, size_t bytes);

  // Chunks in flight times their size bounds the pinned memory: 128 MiB.
  static constexpr size_t kChunkBytes = size_t{32} << 20;
  static constexpr size_t kChunks = 4;
  static constexpr size_t kMinSliceBytes = size_t{1} << 20;  // of one filling thread
  static constexpr int kMaxThreads = 8;

  struct Chunk {
    std::byte* memory = nullptr;
    cudaEvent_t sent = nullptr;  // the chunk's last copy has left it
  };

  Device& device_;
  cudaStream_t stream_;
  std::array<Chunk, kChunks> chunks_;
  size_t next_ = 0;
  int num_threads_ = 1;  // that fill a chunk, with the caller
  std::unique_ptr<ThreadPool> fillers_;
};

}  // namespace hayate::cuda
