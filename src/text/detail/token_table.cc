#include "text/detail/token_table.h"

namespace hayate::text {
namespace {

size_t NumSlots(size_t num_entries) { return std::bit_ceil(num_entries * 2 + 2); }

}  // namespace

TokenTable::TokenTable(size_t num_tokens)
    : slots_(NumSlots(num_tokens)), mask_(static_cast<uint32_t>(slots_.size() - 1)) {}

void TokenTable::Insert(std::string_view bytes, int32_t id) {
  const uint64_t head = Head(bytes);
  uint32_t i = Start(bytes, head);
  for (; slots_[i].id != kNoToken; i = (i + 1) & mask_) {
    if (slots_[i].Holds(bytes, head)) return;
  }
  slots_[i] = {head, bytes.data(), static_cast<uint32_t>(bytes.size()), id};
}

MergeTable::MergeTable(const std::vector<MergeRule>& rules)
    : slots_(NumSlots(rules.size())), mask_(static_cast<uint32_t>(slots_.size() - 1)) {
  for (const MergeRule& rule : rules) {
    uint32_t i = Start(rule.left, rule.right);
    while (slots_[i].left != kNoToken &&
           (slots_[i].left != rule.left || slots_[i].right != rule.right)) {
      i = (i + 1) & mask_;
    }
    slots_[i] = {rule.left, rule.right, {rule.rank, rule.result}};
  }
}

}  // namespace hayate::text
