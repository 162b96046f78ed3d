#include "sched/waiting_queue.h"

#include "base/error.h"

namespace hayate::sched {

Result<Policy> ParsePolicy(std::string_view name) {
  if (name == "fcfs") return Policy::kFcfs;
  if (name == "lpm") return Policy::kLpm;
  if (name == "priority") return Policy::kPriority;
  return Error(ErrorCode::kInvalidArgument,
               "schedule policy '{}' is unknown; use fcfs, lpm or priority", name);
}

void WaitingQueue::Head(size_t limit, std::vector<Sequence*>& out) const {
  out.clear();
  for (Sequence* sequence : sequences_) {
    if (out.size() == limit) return;
    out.push_back(sequence);
  }
}

bool WaitingQueue::Order::operator()(const Sequence* a, const Sequence* b) const {
  if (by_priority && a->request.priority != b->request.priority) {
    return a->request.priority > b->request.priority;
  }
  return a->arrival < b->arrival;
}

}  // namespace hayate::sched
