#include "tensor/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/align.h"
#include "base/error.h"
#include "base/log.h"
#include "tensor/cuda/check.h"
#include "tensor/cuda/uploader.h"

namespace hayate::cuda {
namespace {

constexpr size_t kAlignment = 512;  // of every piece of the arena; TMA and 16-byte loads need less

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) : index_(index) {}
  ~CudaDevice() override {
    cudaSetDevice(index_);
    cudaDeviceSynchronize();
    uploader_.reset();
    for (const cudaGraphExec_t graph : graphs_) cudaGraphExecDestroy(graph);
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
    for (const cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    if (arena_ != nullptr) cudaFree(arena_);
  }

  Status Open(double memory_fraction);

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string name() const override { return name_; }

  Result<void*> Allocate(size_t bytes, MemoryKind kind) override;
  void Free(void* pointer, size_t bytes, MemoryKind kind) override;

  Stream NewStream() override {
    cudaStream_t stream = nullptr;
    CUDA_CHECK(this, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    streams_.push_back(stream);
    return {this, stream};
  }
  Event NewEvent() override {
    cudaEvent_t event = nullptr;
    CUDA_CHECK(this, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    events_.push_back(event);
    return {event};
  }
  void Record(Event event, Stream stream) override {
    CUDA_CHECK(this, cudaEventRecord(AsEvent(event), AsStream(stream)));
  }
  void Wait(Stream stream, Event event) override {
    CUDA_CHECK(this, cudaStreamWaitEvent(AsStream(stream), AsEvent(event)));
  }
  void Synchronize(Event event) override { CUDA_CHECK(this, cudaEventSynchronize(AsEvent(event))); }
  bool Reached(Event event) override {
    const cudaError_t error = cudaEventQuery(AsEvent(event));
    if (error == cudaErrorNotReady) return false;
    CUDA_CHECK(this, error);
    return true;
  }
  void Copy(Stream stream, void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    CUDA_CHECK(this, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, AsStream(stream)));
  }

  void BeginCapture(Stream stream) override {
    CUDA_CHECK(this, cudaStreamBeginCapture(AsStream(stream), cudaStreamCaptureModeThreadLocal));
  }
  Graph EndCapture(Stream stream) override;
  void Launch(Graph graph, Stream stream) override {
    CUDA_CHECK(this, cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph.handle), AsStream(stream)));
  }

  void Discard(Graph graph) override {
    if (graph.handle == nullptr) return;
    const auto known = std::ranges::find(graphs_, static_cast<cudaGraphExec_t>(graph.handle));
    if (known == graphs_.end()) return;
    CUDA_CHECK(this, cudaGraphExecDestroy(*known));
    graphs_.erase(known);
  }

  void Upload(void* to, const void* from, size_t bytes) override {
    uploader_->Upload(to, from, bytes);
  }
  Stream load_stream() override { return load_stream_; }
  void FinishLoading() override { CUDA_CHECK(this, cudaStreamSynchronize(AsStream(load_stream_))); }
  size_t free_bytes() const override { return arena_bytes_ - used_; }

  Status status() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  void Fail(Status failure) override {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    LOG_ERROR("{}", failure.message());
    failure_ = std::move(failure);
  }

 private:
  static cudaStream_t AsStream(const Stream& stream) {
    return static_cast<cudaStream_t>(stream.handle);
  }
  static cudaEvent_t AsEvent(const Event& event) { return static_cast<cudaEvent_t>(event.handle); }

  const int index_;
  std::string name_;
  // The one allocation, carved from the bottom; a piece comes back only when it is the last.
  std::byte* arena_ = nullptr;
  size_t arena_bytes_ = 0;
  size_t used_ = 0;
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> events_;
  std::vector<cudaGraphExec_t> graphs_;
  Stream load_stream_;
  std::unique_ptr<Uploader> uploader_;
  mutable std::mutex mutex_;
  Status failure_;  // guarded by mutex_
};

Status CudaDevice::Open(double memory_fraction) {
  const auto fail = [&](const char* what, cudaError_t error) {
    return Error(ErrorCode::kUnavailable, "cuda{}: {}: {}", index_, what,
                 cudaGetErrorString(error));
  };
  if (const cudaError_t e = cudaSetDevice(index_); e != cudaSuccess) return fail("open", e);
  cudaDeviceProp properties;
  if (const cudaError_t e = cudaGetDeviceProperties(&properties, index_); e != cudaSuccess) {
    return fail("properties", e);
  }
  name_ = fmt::format("cuda{} ({})", index_, properties.name);
  if (properties.major != 9) {
    return Error(ErrorCode::kUnsupported,
                 "{} has compute capability {}.{}; this binary holds kernels for 9.0 (H100, H200)",
                 name_, properties.major, properties.minor);
  }
  size_t free = 0, total = 0;
  if (const cudaError_t e = cudaMemGetInfo(&free, &total); e != cudaSuccess) {
    return fail("memory size", e);
  }
  arena_bytes_ =
      AlignUp(static_cast<size_t>(static_cast<double>(free) * memory_fraction), size_t{2} << 20);
  void* arena = nullptr;
  if (cudaMalloc(&arena, arena_bytes_) != cudaSuccess) {
    return Error(ErrorCode::kResourceExhausted,
                 "{}: no {:.1f} GiB in one piece; {:.1f} of {:.1f} GiB are free. Lower "
                 "--mem-fraction-static",
                 name_, static_cast<double>(arena_bytes_) / 0x1p30,
                 static_cast<double>(free) / 0x1p30, static_cast<double>(total) / 0x1p30);
  }
  arena_ = static_cast<std::byte*>(arena);
  load_stream_ = NewStream();
  ASSIGN_OR_RETURN(uploader_, Uploader::Create(*this, AsStream(load_stream_)));
  return status();
}

Result<void*> CudaDevice::Allocate(size_t bytes, MemoryKind kind) {
  if (kind == MemoryKind::kPinned) {
    void* pointer = nullptr;
    const cudaError_t error = cudaMallocHost(&pointer, bytes);
    if (error == cudaSuccess) return pointer;
    return Error(ErrorCode::kResourceExhausted, "{}: no {} bytes of pinned host memory: {}", name_,
                 bytes, cudaGetErrorString(error));
  }
  const size_t size = AlignUp(bytes, kAlignment);
  if (size > free_bytes()) {
    return Error(ErrorCode::kResourceExhausted,
                 "{}: {} bytes asked for, {} of the {} taken at start are left. Raise "
                 "--mem-fraction-static, or lower --max-total-tokens or --chunked-prefill-size",
                 name_, bytes, free_bytes(), arena_bytes_);
  }
  void* pointer = arena_ + used_;
  used_ += size;
  return pointer;
}

void CudaDevice::Free(void* pointer, size_t bytes, MemoryKind kind) {
  if (kind == MemoryKind::kPinned) {
    CUDA_CHECK(this, cudaFreeHost(pointer));
    return;
  }
  const size_t size = AlignUp(bytes, kAlignment);
  if (static_cast<std::byte*>(pointer) + size == arena_ + used_) used_ -= size;
}

Graph CudaDevice::EndCapture(Stream stream) {
  cudaGraph_t recorded = nullptr;
  CUDA_CHECK(this, cudaStreamEndCapture(AsStream(stream), &recorded));
  if (recorded == nullptr) return {};
  cudaGraphExec_t graph = nullptr;
  CUDA_CHECK(this, cudaGraphInstantiate(&graph, recorded, 0));
  cudaGraphDestroy(recorded);
  if (graph != nullptr) graphs_.push_back(graph);
  return {graph};
}

}  // namespace

Result<std::unique_ptr<Device>> MakeDevice(const CudaDeviceOptions& options) {
  auto device = std::make_unique<CudaDevice>(options.index);
  RETURN_IF_ERROR(device->Open(options.memory_fraction));
  return std::unique_ptr<Device>(std::move(device));
}

int CountDevices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

}  // namespace hayate::cuda
