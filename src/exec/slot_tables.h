#pragma once
// One rank's copy of the page tables: for every slot and cache group the pages of its sequence, in
// order. Changed by the plans' page updates alone, so equal plans keep all ranks' copies equal.
// Owner: the rank's thread.

#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/step_plan.h"

namespace hayate::exec {

class SlotTables {
 public:
  SlotTables(int num_groups, int max_slots, int max_pages_per_slot);

  // Forgets the pages of the slots that start, then applies the updates.
  void Apply(const StepPlan& plan);

  // The first `count` pages of a slot; kNoPage where there is none.
  std::span<const int32_t> Pages(int group, SlotId slot, int count) const;

 private:
  int32_t* Row(int group, SlotId slot);

  int num_groups_;
  int max_slots_;
  int max_pages_;
  std::vector<int32_t> pages_;  // [group, slot, page index]
};

}  // namespace hayate::exec
