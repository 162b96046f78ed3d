#pragma once
// The first launches of a queued step: what the host sends for it arrives, and meets what the
// device keeps between steps (page tables, the tokens that slots sampled last).

#include <cstdint>

#include "tensor/device.h"

namespace hayate::ops {

// Copies `bytes` from pinned host memory to the device's, both in steps of 16 bytes. On a GPU its
// multiprocessors fetch them: between two launches a copy engine costs a stream more time than a
// step's inputs take.
void FetchInputs(Stream stream, void* to, const void* from, int64_t bytes);

// tables[table][index] = page.
struct PageEntry {
  int32_t table = 0;  // cache group
  int32_t index = 0;  // into the group's table: slot × stride + page index
  int32_t page = 0;
};

inline constexpr int kMaxPageTables = 8;

struct StepInputsArgs {
  int32_t num_entries = 0;
  const PageEntry* entries = nullptr;  // different (table, index) pairs
  int32_t* tables[kMaxPageTables] = {};
  // token_ids[i] = last_tokens[late_slots[i]] where late_slots[i] ≥ 0; i < num_tokens.
  int32_t num_tokens = 0;
  const int32_t* late_slots = nullptr;
  const int32_t* last_tokens = nullptr;
  int32_t* token_ids = nullptr;
};
// All pointers are device memory.
void PrepareStepInputs(Stream stream, const StepInputsArgs& args);

}  // namespace hayate::ops
