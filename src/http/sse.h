#pragma once
// Server-sent events (WHATWG HTML §9.2): writing them, and reading them back in a client.

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hayate::http {

inline constexpr std::string_view kSseContentType = "text/event-stream";
// How OpenAI-shaped streams end.
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

// Appends one event. Each line of `data` gets its own field, so any text survives the trip (CR and
// CRLF arrive as LF).
void AppendSseEvent(std::string& out, std::string_view data);
// The same with a type. `event` must hold no line end.
void AppendSseEvent(std::string& out, std::string_view event, std::string_view data);
// A line that clients ignore; keeps idle connections open.
void AppendSseComment(std::string& out, std::string_view text);

// Views, valid until the parser's next call.
struct SseEvent {
  std::string_view event;  // empty means "message"
  std::string_view data;
  std::string_view id;  // the last one seen in the stream
};

// Pull parser: Feed() bytes as they come, cut anywhere, then call Next() until it has nothing.
class SseParser {
 public:
  // An event whose fields are together larger than `max_event_bytes` is an error.
  explicit SseParser(size_t max_event_bytes) : max_event_bytes_(max_event_bytes) {}

  void Feed(std::string_view bytes);

  enum class Outcome { kEvent, kNeedMore, kTooLarge };
  // kTooLarge is final.
  Outcome Next(SseEvent& event);

 private:
  bool TakeLine(std::string_view& line);
  void TakeField(std::string_view line);

  const size_t max_event_bytes_;
  std::string buffer_;  // fed and not yet taken, from offset_
  size_t offset_ = 0;
  size_t searched_ = 0;     // no line end in [offset_, searched_)
  bool at_start_ = true;    // a byte-order mark may still come
  bool skip_lf_ = false;    // the last line ended with CR
  bool delivered_ = false;  // the fields below belong to an event already returned
  bool has_data_ = false;
  std::string event_;
  std::string data_;
  std::string id_;
};

}  // namespace hayate::http
