#pragma once
// A rank of LocalExecutor, for the files that implement it.

#include <atomic>
#include <memory>
#include <span>

#include "exec/local_executor.h"
#include "exec/worker.h"
#include "tensor/buffer.h"

namespace hayate::exec {

// Blocks until `counter` is at least `count`; sleeps meanwhile.
inline void AwaitCount(const std::atomic<uint64_t>& counter, uint64_t count) {
  uint64_t value = counter.load(std::memory_order_acquire);
  while (value < count) {
    counter.wait(value, std::memory_order_acquire);
    value = counter.load(std::memory_order_acquire);
  }
}

struct LocalExecutor::Rank {
  int index = 0;
  std::unique_ptr<Device> device;
  std::unique_ptr<WeightPlaces> places;          // null: weights are replaced beside the old ones
  std::unique_ptr<comm::Group> group;            // all ranks
  std::unique_ptr<comm::Group> attention_group;  // null: all ranks are one
  std::unique_ptr<comm::TokenExchange> exchange;
  // Where the threads of ranks meet whose experts move; null on CPUs, whose `group` is that.
  std::unique_ptr<comm::Group> thread_group;
  Buffer counts_memory;              // pinned, of expert_counts
  std::span<int64_t> expert_counts;  // [layers, E], of the rows that this rank routed
  comm::Group& threads() const { return thread_group ? *thread_group : *group; }
  comm::Group& attention() const { return attention_group ? *attention_group : *group; }
  std::unique_ptr<models::Model> model;
  std::unique_ptr<models::DraftModel> drafter;  // null: none
  std::unique_ptr<Worker> worker;
  Status status;
  // Release by the rank once its worker ran the step, or queued it, acquire in WaitOldest:
  // publishes results_.
  std::atomic<uint64_t> completed{0};

  // No rank waits for this one any more.
  void Leave() const {
    group->Poison();
    if (attention_group != nullptr) attention_group->Poison();
    if (thread_group != nullptr) thread_group->Poison();
  }
};

}  // namespace hayate::exec
