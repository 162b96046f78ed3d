#pragma once
// What a rank computes on: one GPU, or one CPU core. A rank is a thread with a device; tensor
// parallelism over CPU cores and over GPUs is the same code (ARCHITECTURE.md, "Ranks").
//
// On a CPU device a launch runs at once on the calling (rank) thread, so streams and events are
// free; on CUDA it is queued. Callers assume the queued behaviour.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace hayate {

enum class DeviceKind : uint8_t { kCpu, kCuda };

enum class MemoryKind : uint8_t {
  kDevice,  // read and written by kernels; on the CPU: huge-page advised, 64-byte aligned
  // Host memory that the device copies from at full rate, and that kernels read and write; on the
  // CPU: plain.
  kPinned,
};

class Device;

// An in-order queue of work on one device. A handle: copying it names the same queue.
struct Stream {
  Device* device = nullptr;
  void* handle = nullptr;  // cudaStream_t, or null on the CPU
};

// A point in a stream. A handle owned by the device, freed with it.
struct Event {
  void* handle = nullptr;  // cudaEvent_t, or null on the CPU
};

// Launches recorded once and replayed as one. A handle owned by the device, freed with it or before
// by Discard.
struct Graph {
  void* handle = nullptr;  // cudaGraphExec_t; null where the device has no graphs
};

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  // "cpu0 (avx512-vnni)", "cuda0 (NVIDIA H200)".
  virtual std::string name() const = 0;

  // Start-up only. kResourceExhausted says how many bytes were asked for and how many are free.
  virtual Result<void*> Allocate(size_t bytes, MemoryKind kind) = 0;
  virtual void Free(void* pointer, size_t bytes, MemoryKind kind) = 0;

  virtual Stream NewStream() = 0;
  virtual Event NewEvent() = 0;
  virtual void Record(Event event, Stream stream) = 0;
  virtual void Wait(Stream stream, Event event) = 0;
  // Blocks the host until the event's point is reached.
  virtual void Synchronize(Event event) = 0;
  // Whether Synchronize would not block; true as well once the device has failed. Any thread.
  virtual bool Reached(Event /*event*/) { return true; }
  // Queues a copy between any two memories this device can reach. Host memory on either side must
  // be kPinned.
  virtual void Copy(Stream stream, void* to, const void* from, size_t bytes) = 0;

  // Between the two, what this thread queues on `stream` is recorded instead of run: kernels and
  // device copies only, with the pointers and shapes of the recording. A null graph means that the
  // device has no graphs (CPU: what was queued has run) or failed.
  virtual void BeginCapture(Stream stream) = 0;
  virtual Graph EndCapture(Stream stream) = 0;
  virtual void Launch(Graph graph, Stream stream) = 0;
  // Frees a graph that is not running; a null one is nothing. The rank's thread.
  virtual void Discard(Graph graph) = 0;

  // Loading: copies any host memory into device memory at the full rate of the link, in order with
  // what is queued on load_stream(). `from` may be reused when it returns. The rank's thread.
  virtual void Upload(void* to, const void* from, size_t bytes) = 0;
  // Where kernels that prepare weights are queued.
  virtual Stream load_stream() = 0;
  // Blocks until everything on load_stream() is done.
  virtual void FinishLoading() = 0;

  // What Allocate(kDevice) can still give, bytes.
  virtual size_t free_bytes() const = 0;

  // The device's first failure; from then on nothing it holds can be trusted. Any thread.
  virtual Status status() const = 0;
  virtual void Fail(Status failure) = 0;
};

// The calling thread's core as a device. `index` is for its name.
std::unique_ptr<Device> MakeCpuDevice(int index);

struct CudaDeviceOptions {
  int index = 0;
  // Share of the memory that is free now to take, in one allocation that everything is carved from.
  double memory_fraction = 0.9;
};
// kUnsupported in a build without CUDA, kUnavailable without a driver or such a device,
// kResourceExhausted when the memory cannot be had. Makes the device current on the calling thread.
Result<std::unique_ptr<Device>> MakeCudaDevice(const CudaDeviceOptions& options);
// Devices that MakeCudaDevice can open: 0 in a build without CUDA, or where there is no driver.
int CountCudaDevices();
// For processes whose ranks are to share a GPU, before anything else of CUDA and with no other
// thread: kernels are then loaded when a device is opened, since a kernel's loading waits for those
// that run, which may wait for the loading rank; and every stream has a queue of its own. Sets
// CUDA_MODULE_LOADING and CUDA_DEVICE_MAX_CONNECTIONS where they are not set.
void PrepareToShareGpus();

}  // namespace hayate
