#pragma once
// Cuts a stream of server-sent events so that only whole events go on: when the worker dies in the
// middle of one, the client must not see half of it before the error event.

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace hayate::gateway {

class EventBoundary {
 public:
  // Appends to `out` what may go on now. In the common case `bytes` end with an event and pass as
  // one piece; the tail of an unfinished event is kept for the next call, up to kMaxHeldBytes.
  void Take(std::string_view bytes, std::string& out);

  // Nothing held and the last byte that went on ended an event: an error event may follow.
  // Otherwise this is what must come before it.
  std::string_view Closing() const { return open_ ? "\n\n" : ""; }
  // What is held, for a stream that ended well without a blank line.
  std::string TakeHeld() { return std::exchange(held_, {}); }

  // A larger event is passed on in pieces.
  static constexpr size_t kMaxHeldBytes = 256 << 10;

 private:
  std::string held_;
  bool open_ = false;  // part of an event has gone on
};

// The end of the last whole event in `bytes`: behind its empty line; 0 when there is none.
size_t LastEventEnd(std::string_view bytes);

}  // namespace hayate::gateway
