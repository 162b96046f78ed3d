#include "tensor/cuda/uploader.h"

#include <algorithm>
#include <cstring>
#include <latch>
#include <thread>

#include "base/align.h"
#include "base/error.h"
#include "tensor/cuda/check.h"

namespace hayate::cuda {

Uploader::Uploader(Device& device, cudaStream_t stream)
    : device_(device),
      stream_(stream),
      num_threads_(
          std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 1, kMaxThreads)),
      fillers_(std::make_unique<ThreadPool>("upload", num_threads_, 2 * kMaxThreads)) {}

Result<std::unique_ptr<Uploader>> Uploader::Create(Device& device, cudaStream_t stream) {
  auto uploader = std::unique_ptr<Uploader>(new Uploader(device, stream));
  for (Chunk& chunk : uploader->chunks_) {
    void* memory = nullptr;
    if (const cudaError_t error = cudaMallocHost(&memory, kChunkBytes); error != cudaSuccess) {
      return Error(ErrorCode::kResourceExhausted, "{}: no {} bytes of pinned host memory: {}",
                   device.name(), kChunkBytes, cudaGetErrorString(error));
    }
    chunk.memory = static_cast<std::byte*>(memory);
    CUDA_CHECK(&device, cudaEventCreateWithFlags(&chunk.sent, cudaEventDisableTiming));
  }
  return uploader;
}

Uploader::~Uploader() {
  cudaStreamSynchronize(stream_);
  for (const Chunk& chunk : chunks_) {
    if (chunk.sent != nullptr) cudaEventDestroy(chunk.sent);
    if (chunk.memory != nullptr) cudaFreeHost(chunk.memory);
  }
}

void Uploader::Upload(void* to, const void* from, size_t bytes) {
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  for (size_t done = 0; done < bytes;) {
    const size_t size = std::min(bytes - done, kChunkBytes);
    Chunk& chunk = chunks_[next_];
    next_ = (next_ + 1) % kChunks;
    CUDA_CHECK(&device_, cudaEventSynchronize(chunk.sent));
    Fill(chunk.memory, in + done, size);
    CUDA_CHECK(&device_,
               cudaMemcpyAsync(out + done, chunk.memory, size, cudaMemcpyHostToDevice, stream_));
    CUDA_CHECK(&device_, cudaEventRecord(chunk.sent, stream_));
    done += size;
  }
}

void Uploader::Fill(std::byte* chunk, const std::byte* from, size_t bytes) {
  const auto wanted = static_cast<size_t>(num_threads_);
  const size_t slice = std::max(AlignUp(CeilDiv(bytes, wanted), size_t{64}), kMinSliceBytes);
  const size_t others = CeilDiv(bytes, slice) - 1;  // besides the caller's, the first
  std::latch filled(static_cast<ptrdiff_t>(others));
  for (size_t i = 1; i <= others; ++i) {
    const size_t begin = i * slice, size = std::min(slice, bytes - begin);
    const auto copy = [=, &filled] {
      std::memcpy(chunk + begin, from + begin, size);
      filled.count_down();
    };
    if (!fillers_->TrySubmit(copy)) copy();
  }
  std::memcpy(chunk, from, std::min(slice, bytes));
  filled.wait();
}

}  // namespace hayate::cuda
