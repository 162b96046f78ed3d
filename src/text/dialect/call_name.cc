#include "text/dialect/call_name.h"

#include "text/dialect/marker_search.h"

namespace hayate::text {
namespace {

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-.:/").find(c) != std::string_view::npos;
}

}  // namespace

CallReader::Step CallName::Push(char byte) {
  if (tail_.empty() && IsNameByte(byte)) {
    if (name_.size() == kMaxCallName) return CallReader::Step::kBad;
    name_ += byte;
    return CallReader::Step::kMore;
  }
  if (name_.empty() && IsBlank(byte)) return CallReader::Step::kMore;
  if (name_.empty() || tail_.size() > kMaxCallName) return CallReader::Step::kBad;
  tail_ += byte;
  const std::string_view tail = tail_;
  if (tail == end_) return CallReader::Step::kDone;
  if (end_.starts_with(tail) || kCallId.starts_with(tail)) return CallReader::Step::kMore;
  if (!tail.starts_with(kCallId)) return CallReader::Step::kBad;
  return tail.ends_with(end_) ? CallReader::Step::kDone : CallReader::Step::kMore;
}

}  // namespace hayate::text
