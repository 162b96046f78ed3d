#include "kv/prefix_handle.h"

#include "kv/radix_tree.h"

namespace hayate::kv {

PrefixHandle& PrefixHandle::operator=(PrefixHandle&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  tree_ = std::exchange(other.tree_, nullptr);
  namespace_ = other.namespace_;
  path_ = std::exchange(other.path_, {});
  pinned_begin_ = other.pinned_begin_;
  return *this;
}

void PrefixHandle::Reset() {
  if (tree_ == nullptr) return;
  RadixTree& tree = *tree_;
  std::vector<Pin> pins;
  tree.TakeAllPins(*this, pins);
  for (const Pin& pin : pins) tree.Unpin(pin);
}

int32_t PrefixHandle::num_tokens() const {
  return path_.empty() ? 0 : num_pages() * tree_->page_tokens_;
}

PageId PrefixHandle::page(int group, int32_t index) const {
  const auto g = static_cast<size_t>(group);
  if (!tree_->groups_[g].is_base && index < pinned_begin_[g]) return kNoPage;
  return tree_->entry(path_[static_cast<size_t>(index)], g).page;
}

}  // namespace hayate::kv
