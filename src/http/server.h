#pragma once
// An HTTP/1.1 server for long-lived streams. It knows nothing of routes or of models: every
// complete request goes to one handler on the IoThread that owns the connection, together with a
// ResponseWriter that may be answered there and then, or kept and fed as events come.
//
//   accept (thread 0) → least loaded IoThread → read and check → Handler → ResponseWriter → write
//
// Refused without the handler: malformed or ambiguous messages 400, slow ones 408, large bodies
// 413, large heads 431, unknown codings 501, too many connections 503.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "http/body_stream.h"
#include "http/endpoint.h"
#include "http/io_thread.h"
#include "http/message.h"
#include "http/response_writer.h"
#include "http/tls.h"

namespace hayate::http {

// The views live as long as the handler's call.
struct Request {
  std::string_view method;  // "GET": case matters
  std::string_view path;    // "/v1/models": undecoded, without the query
  std::string_view query;   // undecoded, without '?'
  HeaderView headers;
  std::string body;  // may be moved out; has room for kBodyPadding bytes past its size
  // What follows `body`; only for bodies over ServerOptions::stream_body_bytes.
  std::optional<BodyStream> rest;
  std::optional<uint64_t> body_bytes;  // of the whole body, when known before its end
  std::string_view peer;               // numeric address of the other end; empty: unknown
  std::shared_ptr<void> context;       // the handler's own, for what it calls
  IoThread& thread;                    // the thread of this call; lives as long as the server
};

// What simdjson may read past the end of its input.
inline constexpr size_t kBodyPadding = 64;

// Runs on the http threads, several at once, and must not block. Pipelined requests of one
// connection come one after another, each when the answer before it is complete.
using Handler = std::function<void(Request& request, ResponseWriter writer)>;

struct ServerOptions {
  Endpoint listen{"127.0.0.1", 0};  // port 0 takes any free one
  int inherited_fd = -1;  // a bound socket of a process before this one; then `listen` is its name
  int num_threads = 1;
  int max_connections = 4096;          // beyond it: 503
  size_t max_header_bytes = 32 << 10;  // request line and fields; beyond it: 431
  size_t max_body_bytes = 64 << 20;    // decoded; beyond it: 413
  // A body beyond it goes to the handler with its first part; the handler reads the rest itself.
  size_t stream_body_bytes = SIZE_MAX;
  // Output of a stream that the client has not taken; beyond it the connection is closed.
  size_t max_pending_bytes = 1 << 20;
  std::chrono::milliseconds header_timeout{
      10'000};  // first byte of a request (or connect) to its head
  std::chrono::milliseconds body_timeout{60'000};   // head to the end of the body
  std::chrono::milliseconds idle_timeout{75'000};   // between requests
  std::chrono::milliseconds write_timeout{30'000};  // the client takes no byte of what is pending
  size_t max_posted = 65536;                        // IoThread::TryPost, per thread
  std::shared_ptr<TlsIdentity> tls;                 // null: plain HTTP

  // Renders the answers that the server gives by itself; plain text when empty.
  struct ErrorBody {
    std::string content_type;
    std::string body;
  };
  std::function<ErrorBody(int status, std::string_view reason)> render_error;
};

class Server {
 public:
  // Binds the port and starts the threads; nothing connects before Start(). kIo names the address.
  static Result<std::unique_ptr<Server>> Create(ServerOptions options);
  // As Shutdown with no grace. Wakeups on the server's threads must be gone by then.
  ~Server();

  uint16_t port() const;
  // The listening socket, to be inherited by the process after this one; -1 once closed.
  int listen_fd() const;
  std::span<const std::unique_ptr<IoThread>> threads() const;
  // Accepted and not yet closed. Any thread.
  int num_connections() const;

  // Begins to accept. Once.
  Status Start(Handler handler);

  // Closes the port and idle connections, lets requests under way finish for up to `grace`, then
  // cuts what is left (their OnClose runs) and joins. Blocks; not on an http thread. The handler is
  // not called afterwards. kDeadlineExceeded when connections had to be cut.
  Status Shutdown(std::chrono::milliseconds grace);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hayate::http
