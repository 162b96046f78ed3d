#include "exec/slot_tables.h"

#include <algorithm>

#include "base/check.h"

namespace hayate::exec {

SlotTables::SlotTables(int num_groups, int max_slots, int max_pages_per_slot)
    : num_groups_(num_groups), max_slots_(max_slots), max_pages_(max_pages_per_slot) {
  pages_.assign(static_cast<size_t>(num_groups) * max_slots * max_pages_per_slot, kNoPage.value);
}

int32_t* SlotTables::Row(int group, SlotId slot) {
  CHECK(group >= 0 && group < num_groups_) << group;
  CHECK(slot.value >= 0 && slot.value < max_slots_) << slot;
  return pages_.data() + (static_cast<size_t>(group) * max_slots_ + slot.value) * max_pages_;
}

void SlotTables::Apply(const StepPlan& plan) {
  for (const SlotStart& start : plan.starts) {
    for (int group = 0; group < num_groups_; ++group) {
      std::fill_n(Row(group, start.slot), max_pages_, kNoPage.value);
    }
  }
  for (const PageUpdate& update : plan.page_updates) {
    CHECK(update.index >= 0 && update.index < max_pages_) << update.index;
    Row(update.group, update.slot)[update.index] = update.page.value;
  }
}

std::span<const int32_t> SlotTables::Pages(int group, SlotId slot, int count) const {
  DCHECK_LE(count, max_pages_);
  const int32_t* row = const_cast<SlotTables*>(this)->Row(group, slot);
  return {row, static_cast<size_t>(count)};
}

}  // namespace hayate::exec
