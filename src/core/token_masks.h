#pragma once
// Which tokens the rows of one step may draw. The one part of a step that is not known when its
// plan is submitted: the engine writes it while the forward pass runs, and the sampler waits for
// it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hayate {

class TokenMasks {
 public:
  // Before the step is submitted: `rows` masks of `words` words, not yet published.
  void Reset(size_t rows, size_t words) {
    words_ = words;
    bits_.resize(rows * words);
    published_.store(0);
  }

  // The writer's until Publish. Bit t of a row set: token t is allowed.
  std::span<uint32_t> row(size_t index) { return rows(index, 1); }
  std::span<uint32_t> rows(size_t index, size_t count) {
    return std::span(bits_).subspan(index * words_, count * words_);
  }
  // Lets the samplers go on; exactly once a step, whatever became of its sequences.
  void Publish() {
    published_.store(1, std::memory_order_release);  // pairs with the acquire in Await
    published_.notify_all();
  }

  // Any number of threads: blocks until the masks are published. The row is [⌈V/32⌉] words and
  // stays until the step's result was taken.
  const uint32_t* Await(size_t index) const {
    published_.wait(0, std::memory_order_acquire);
    return bits_.data() + index * words_;
  }
  bool published() const { return published_.load(std::memory_order_acquire) != 0; }

 private:
  size_t words_ = 0;
  std::vector<uint32_t> bits_;  // [rows, words]
  std::atomic<uint32_t> published_{0};
};

}  // namespace hayate
