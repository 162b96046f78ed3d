#pragma once
// The part of a large request body that had not arrived when the handler ran.

#include <functional>
#include <memory>
#include <string_view>

#include "base/status.h"

namespace hayate::http {

struct BodyState;

// Reads the rest of one request body, for as long as its ResponseWriter is unanswered. Owner: the
// IoThread of the request. Nothing is read before Start(), and while nothing is read the client is
// held back by its own socket. Destroyed early it drops the rest, and the connection closes after
// the answer.
class BodyStream {
 public:
  explicit BodyStream(std::shared_ptr<BodyState> state) : state_(std::move(state)) {}
  BodyStream(BodyStream&&) = default;
  BodyStream& operator=(BodyStream&& other);
  ~BodyStream() { Release(); }

  // `on_data` gets decoded pieces; `on_end` runs once after the last: OK, kPayloadTooLarge,
  // kInvalidArgument for a malformed chunk, or kDeadlineExceeded. Both from the loop, never inside
  // a call on this object. When the client goes away neither runs again: ResponseWriter::OnClose
  // tells. Both may destroy this object.
  void Start(std::function<void(std::string_view)> on_data,
             std::function<void(const Status&)> on_end);
  // Nothing more is read until Resume(); what was read together with the last piece still comes.
  void Pause();
  void Resume();

 private:
  void Release();
  std::shared_ptr<BodyState> state_;  // null when moved from
};

}  // namespace hayate::http
