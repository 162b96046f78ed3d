#include "text/stop_matcher.h"

#include <deque>

#include "base/error.h"

namespace hayate::text {

Result<StopStrings> StopStrings::Create(std::vector<std::string> strings) {
  if (strings.size() > kMaxStrings) {
    return Error(ErrorCode::kInvalidArgument, "has {} strings, the limit is {}", strings.size(),
                 kMaxStrings);
  }
  size_t total = 0;
  for (const std::string& text : strings) {
    if (text.empty()) {
      return Status(ErrorCode::kInvalidArgument, "has an empty string, which would match anywhere");
    }
    total += text.size();
  }
  if (total > kMaxTotalBytes) {
    return Error(ErrorCode::kInvalidArgument, "has {} bytes in all, the limit is {}", total,
                 kMaxTotalBytes);
  }
  StopStrings stops;
  stops.strings_ = std::move(strings);
  for (size_t i = 0; i < stops.strings_.size(); ++i) stops.Insert(i);
  stops.Link();
  return stops;
}

std::optional<uint32_t> StopStrings::Child(uint32_t node, char byte) const {
  for (const auto& [edge, child] : nodes_[node].children) {
    if (edge == byte) return child;
  }
  return std::nullopt;
}

void StopStrings::Insert(size_t index) {
  uint32_t node = 0;
  for (const char byte : strings_[index]) {
    std::optional<uint32_t> child = Child(node, byte);
    if (!child) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_[node].children.emplace_back(byte, *child);
      const uint32_t depth = nodes_[node].depth + 1;
      nodes_.push_back({.children = {}, .depth = depth});
    }
    node = *child;
  }
  if (nodes_[node].match < 0) nodes_[node].match = static_cast<int32_t>(index);
}

// Breadth first, so that every fallback is final before a longer prefix needs it.
void StopStrings::Link() {
  std::deque<uint32_t> queue;
  for (const auto& [byte, child] : nodes_[0].children) queue.push_back(child);
  while (!queue.empty()) {
    const uint32_t node = queue.front();
    queue.pop_front();
    for (const auto& [byte, child] : nodes_[node].children) {
      nodes_[child].fallback = Next(nodes_[node].fallback, byte);
      queue.push_back(child);
    }
    if (nodes_[node].match < 0) nodes_[node].match = nodes_[nodes_[node].fallback].match;
  }
}

uint32_t StopStrings::Next(uint32_t node, char byte) const {
  while (true) {
    if (const std::optional<uint32_t> child = Child(node, byte)) return *child;
    if (node == 0) return 0;
    node = nodes_[node].fallback;
  }
}

StopMatcher::Output StopMatcher::Feed(std::string_view delta) {
  Output out;
  if (finished_) return out;
  for (size_t i = 0; i < delta.size(); ++i) {
    node_ = stops_.Next(node_, delta[i]);
    const int32_t match = stops_.nodes_[node_].match;
    if (match < 0) continue;
    finished_ = true;
    out.matched = static_cast<size_t>(match);
    out.text = std::exchange(held_, {});
    out.text += delta.substr(0, i + 1);
    if (stop_text_ == StopText::kTrimmed) {
      out.text.resize(out.text.size() - stops_.strings_[*out.matched].size());
    }
    return out;
  }
  held_ += delta;
  const size_t safe = held_.size() - stops_.nodes_[node_].depth;
  out.text = held_.substr(0, safe);
  held_.erase(0, safe);
  return out;
}

std::string StopMatcher::Flush() {
  finished_ = true;
  return std::exchange(held_, {});
}

}  // namespace hayate::text
