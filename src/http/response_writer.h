#pragma once
// The caller's end of one HTTP exchange.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "http/message.h"

namespace hayate::http {

struct Exchange;

// Status line and fields of a response. Content-Length, Transfer-Encoding, Connection and Date are
// the server's business. A line end inside a value is turned into a blank.
struct ResponseMeta {
  int status = 200;
  std::string_view content_type = {};  // none when empty
  std::span<const Header> headers = {};
  // For BeginStream: the number of bytes to come, which the caller then keeps to. Also for the
  // answer to HEAD.
  std::optional<uint64_t> content_length = {};
};

// How an exchange ended.
struct Answered {
  int status = 0;           // 0: the client went away before an answer began
  uint64_t body_bytes = 0;  // as handed over, without framing
  bool complete = false;    // false: the client went away, or the stream was cut
};

// Answers one request: either Send(), or BeginStream(), Write()…, End(). Owner: the IoThread of the
// request; every call and the destructor happen there. May be kept after the handler returned and
// after the client went away, when calls do nothing. Bytes leave together at the end of the loop's
// turn.
//
// Destroyed without an answer it sends 500; destroyed in the middle of a stream it cuts the
// connection, so that the client can tell a broken stream from a complete one.
class ResponseWriter {
 public:
  explicit ResponseWriter(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  ResponseWriter(ResponseWriter&&) = default;
  ResponseWriter& operator=(ResponseWriter&& other);
  ~ResponseWriter() { Release(); }

  // The whole answer. Once, and not after BeginStream.
  void Send(const ResponseMeta& meta, std::string_view body);

  // A body that comes in pieces: chunked, or for HTTP/1.0 up to the close, unless its length is
  // known.
  void BeginStream(const ResponseMeta& meta);
  // Each call is one chunk on the wire.
  void Write(std::string_view bytes);
  void End();

  // A field of whatever answer follows, errors included. Before the answer begins.
  void AddField(std::string_view name, std::string_view value);
  // Runs once when the answer is complete or the client is gone, whoever holds this object then;
  // may run inside a call on it, so it must not touch it.
  void OnFinish(std::function<void(const Answered&)> callback);

  // True once the client is gone: it closed or half-closed its side, took no bytes for
  // write_timeout, let more than max_pending_bytes pile up, or the server stopped.
  bool closed() const;
  // Runs when closed() turns true before the answer is complete; at most once, from the loop, never
  // inside a call on this object. May destroy this object. Set it before the handler returns.
  void OnClose(std::function<void()> callback);

  // Runs once, from the loop, when pending_bytes() is 0 at the end of a turn that wrote. May
  // destroy this object.
  void OnDrained(std::function<void()> callback);

  // Bytes of this connection that the kernel has not taken yet: the measure for back-pressure.
  size_t pending_bytes() const;

 private:
  void Release();
  std::shared_ptr<Exchange> exchange_;  // null when moved from
};

}  // namespace hayate::http
