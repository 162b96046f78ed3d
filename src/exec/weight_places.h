#pragma once
// A device for loading a model again and again into the same places: it remembers what the first
// loading allocated, in order, and gives every later one those pieces again. A GPU's captured steps
// hold addresses of weights, and it has no room for a second copy beside the first.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tensor/buffer.h"
#include "tensor/device.h"

namespace hayate::exec {

class WeightPlaces final : public Device {
 public:
  // `device` outlives it, and it the models that were loaded with it.
  explicit WeightPlaces(Device& device) : device_(device) {}
  ~WeightPlaces() override;

  // The first loading is over. Takes memory for what a loading needs for a while: on a GPU the
  // chunk through which converted weights go. Until Rewind nothing can be allocated.
  Status Keep();
  // Before each later loading. What was loaded before is written over as it proceeds.
  void Rewind();

  DeviceKind kind() const override { return device_.kind(); }
  std::string name() const override { return device_.name(); }
  // After Keep: kInvalidArgument where the loading asks for something else than the first did.
  Result<void*> Allocate(size_t bytes, MemoryKind kind) override;
  // Only what came back during the first loading, which needed it for a while, really goes.
  void Free(void* pointer, size_t bytes, MemoryKind kind) override;

  Stream NewStream() override { return device_.NewStream(); }
  Event NewEvent() override { return device_.NewEvent(); }
  void Record(Event event, Stream stream) override { device_.Record(event, stream); }
  void Wait(Stream stream, Event event) override { device_.Wait(stream, event); }
  void Synchronize(Event event) override { device_.Synchronize(event); }
  bool Reached(Event event) override { return device_.Reached(event); }
  void Copy(Stream stream, void* to, const void* from, size_t bytes) override {
    device_.Copy(stream, to, from, bytes);
  }
  void BeginCapture(Stream stream) override { device_.BeginCapture(stream); }
  Graph EndCapture(Stream stream) override { return device_.EndCapture(stream); }
  void Launch(Graph graph, Stream stream) override { device_.Launch(graph, stream); }
  void Discard(Graph graph) override { device_.Discard(graph); }
  void Upload(void* to, const void* from, size_t bytes) override {
    device_.Upload(to, from, bytes);
  }
  Stream load_stream() override { return device_.load_stream(); }
  void FinishLoading() override { device_.FinishLoading(); }
  size_t free_bytes() const override { return device_.free_bytes(); }
  Status status() const override { return device_.status(); }
  void Fail(Status failure) override { device_.Fail(std::move(failure)); }

 private:
  static constexpr size_t kNever = std::numeric_limits<size_t>::max();

  struct Piece {
    void* at = nullptr;
    size_t bytes = 0;
    MemoryKind kind = MemoryKind::kDevice;
    size_t freed_at = kNever;  // how many pieces there were when it came back

    bool is_temporary() const { return freed_at != kNever; }
  };

  size_t ScratchBytes() const;
  bool InScratch(const void* pointer) const;

  Device& device_;
  std::vector<Piece> pieces_;  // in the order of the first loading
  bool kept_ = false;
  size_t next_ = 0;  // of pieces_, after Keep
  // Device memory of temporary pieces, which do not have their places any more: whatever was
  // allocated behind them took those. One behind the other, from the start when none is left.
  Buffer scratch_;
  size_t scratch_used_ = 0;
  size_t scratch_pieces_ = 0;
};

}  // namespace hayate::exec
