#pragma once
// The part of a large request body that had not arrived when the handler ran.

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "base/status.h"

namespace hayate::http {

class Pipe;
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
  // Before Start(), with Client::UploadPipe(): whenever `pipe` is empty, bytes are moved into it
  // within the kernel, and `on_piped` tells of them in the place of on_data. A chunked body, one
  // under TLS and a kernel that cannot do so still give theirs to on_data.
  void PipeInto(std::shared_ptr<Pipe> pipe, std::function<void(size_t num_bytes)> on_piped);
  // Nothing more is read until Resume(); what was read together with the last piece still comes.
  void Pause();
  void Resume();

 private:
  void Release();
  std::shared_ptr<BodyState> state_;  // null when moved from
};

}  // namespace hayate::http
