#include "http/sse.h"

#include <algorithm>

namespace hayate::http {
namespace {

// As find_first_of("\r\n", begin), which looks at one byte at a time: two memchr are far faster.
// They look at a window at a time, so that a text full of one kind of line end is not searched to
// its end for the other kind at every line.
size_t FindLineEnd(std::string_view text, size_t begin) {
  constexpr size_t kWindow = 512;
  for (; begin < text.size(); begin += kWindow) {
    const std::string_view window = text.substr(begin, kWindow);
    const size_t lf = window.find('\n');
    const size_t end = std::min(lf, window.substr(0, lf).find('\r'));
    if (end != std::string_view::npos) return begin + end;
  }
  return std::string_view::npos;
}

void AppendData(std::string& out, std::string_view data) {
  while (true) {
    const size_t end = FindLineEnd(data, 0);
    out.append("data: ").append(data.substr(0, end)).push_back('\n');
    if (end == std::string_view::npos) break;
    data.remove_prefix(data.substr(end).starts_with("\r\n") ? end + 2 : end + 1);
  }
  out.push_back('\n');
}

}  // namespace

void AppendSseEvent(std::string& out, std::string_view data) { AppendData(out, data); }

void AppendSseEvent(std::string& out, std::string_view event, std::string_view data) {
  out.append("event: ").append(event).push_back('\n');
  AppendData(out, data);
}

void AppendSseComment(std::string& out, std::string_view text) {
  out.append(": ");
  for (char c : text) out.push_back(c == '\n' || c == '\r' ? ' ' : c);
  out.append("\n\n");
}

void SseParser::Feed(std::string_view bytes) {
  // Dropping what was taken before growing keeps the buffer at one event plus one feed.
  if (offset_ > 0) {
    buffer_.erase(0, offset_);
    searched_ -= offset_;
    offset_ = 0;
  }
  buffer_.append(bytes);
}

bool SseParser::TakeLine(std::string_view& line) {
  if (skip_lf_ && offset_ < buffer_.size()) {
    skip_lf_ = false;
    if (buffer_[offset_] == '\n') ++offset_;
    searched_ = std::max(searched_, offset_);
  }
  const size_t end = FindLineEnd(buffer_, searched_);
  if (end == std::string::npos) {
    searched_ = buffer_.size();
    return false;
  }
  line = std::string_view(buffer_).substr(offset_, end - offset_);
  skip_lf_ = buffer_[end] == '\r';
  offset_ = searched_ = end + 1;
  return true;
}

void SseParser::TakeField(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == 0) return;  // a comment
  const std::string_view name = line.substr(0, colon);
  std::string_view value = colon == std::string_view::npos ? "" : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (name == "data") {
    if (has_data_) data_.push_back('\n');
    data_.append(value);
    has_data_ = true;
  } else if (name == "event") {
    event_ = value;
  } else if (name == "id" && value.find('\0') == std::string_view::npos) {
    id_ = value;
  }
}

SseParser::Outcome SseParser::Next(SseEvent& event) {
  if (delivered_) {
    delivered_ = has_data_ = false;
    event_.clear();
    data_.clear();
  }
  if (at_start_) {
    constexpr std::string_view kMark = "\xEF\xBB\xBF";
    const std::string_view front = std::string_view(buffer_).substr(offset_, kMark.size());
    if (front.size() < kMark.size() && kMark.starts_with(front)) return Outcome::kNeedMore;
    at_start_ = false;
    if (front == kMark) offset_ = searched_ = offset_ + kMark.size();
  }
  std::string_view line;
  while (TakeLine(line)) {
    if (!line.empty()) {
      TakeField(line);
      if (data_.size() + event_.size() + id_.size() > max_event_bytes_) return Outcome::kTooLarge;
    } else if (has_data_) {
      delivered_ = true;
      event = {event_, data_, id_};
      return Outcome::kEvent;
    } else {
      event_.clear();
    }
  }
  if (buffer_.size() - offset_ + data_.size() > max_event_bytes_) return Outcome::kTooLarge;
  return Outcome::kNeedMore;
}

}  // namespace hayate::http
