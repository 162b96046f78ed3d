#pragma once
// The requests that wait for a slot, in the order of the policy. Owner: engine thread.

#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/ids.h"
#include "sched/sequence.h"

namespace hayate::sched {

enum class Policy : uint8_t {
  kFcfs,      // by arrival
  kLpm,       // longest cached prefix first, among the 128 oldest
  kPriority,  // highest priority first, then arrival; may preempt
};

// "fcfs", "lpm", "priority".
Result<Policy> ParsePolicy(std::string_view name);

// Keeps sequences ordered by (priority, arrival) or by arrival alone. A sequence that comes back
// after retraction keeps its arrival and so its place in front.
class WaitingQueue {
 public:
  explicit WaitingQueue(Policy policy) : order_{policy == Policy::kPriority} {}

  void Insert(Sequence* sequence) { sequences_.insert(sequence); }
  void Erase(Sequence* sequence) { sequences_.erase(sequence); }
  size_t size() const { return sequences_.size(); }
  bool empty() const { return sequences_.empty(); }

  // The first `limit` in order.
  void Head(size_t limit, std::vector<Sequence*>& out) const;

 private:
  struct Order {
    bool by_priority;
    bool operator()(const Sequence* a, const Sequence* b) const;
  };
  Order order_;
  std::set<Sequence*, Order> sequences_{order_};
};

}  // namespace hayate::sched
