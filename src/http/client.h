#pragma once
// An HTTP/1.1 client: hundreds of concurrent streams on one IoThread with Client, or one at a time
// on the caller's thread with BlockingClient.

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "http/endpoint.h"
#include "http/io_thread.h"
#include "http/message.h"
#include "http/tls.h"

namespace hayate::http {

class Pipe;

struct ClientRequest {
  std::string method = "GET";
  std::string target = "/";  // path and query
  // Besides Host, Content-Length and Connection, which the client sets.
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;

  // For proxies. Complete field lines, each with its CR LF, sent as they are.
  std::string raw_fields;
  // Follows `body` without being copied when it is large. `owner` keeps the bytes alive.
  struct SharedBody {
    std::shared_ptr<const void> owner;
    std::array<std::string_view, 3> pieces;
    size_t size() const { return pieces[0].size() + pieces[1].size() + pieces[2].size(); }
  };
  SharedBody shared_body;
  // Bytes that come by Client::Write after these; kUnknownLength sends the body chunked.
  static constexpr uint64_t kUnknownLength = UINT64_MAX;
  uint64_t streamed_bytes = 0;
};

struct ClientOptions {
  std::chrono::milliseconds connect_timeout{5'000};
  std::chrono::milliseconds head_timeout{
      600'000};  // request sent to response head; prefill can be long
  std::chrono::milliseconds read_timeout{120'000};  // between two pieces of the body
  size_t max_header_bytes = 64 << 10;
  size_t max_idle_connections = 1024;     // kept for the next request
  std::shared_ptr<const TlsContext> tls;  // for an endpoint with tls
};

// What happens to one request, in this order: on_head at most once, on_data any number of times,
// on_done exactly once, unless the request is cancelled: then nothing more. All on the client's
// IoThread, never inside Fetch().
struct ResponseHandlers {
  std::function<void(int status, HeaderView headers)> on_head;  // the view lives for the call
  std::function<void(std::string_view body_bytes)> on_data;     // decoded
  // OK: the body is complete, whatever the HTTP status. kUnavailable: refused, reset or cut short.
  // kDeadlineExceeded: a timeout, which the message names. kDataLoss: not HTTP.
  std::function<void(const Status& status)> on_done;

  // Before on_head, when the request goes out on an established connection: from here on the server
  // may have seen it. kReused: a connection that the server may be closing at this moment.
  enum class Via { kFresh, kReused };
  std::function<void(Via via)> on_sent;
  // Each time that the kernel has taken all that was handed over: the time for Client::Write.
  std::function<void()> on_drained;
};

// Requests to one server. Owner: its IoThread (or loop), also for construction and destruction.
// Each request takes an idle connection or opens one; the caller bounds how many are under way.
class Client {
 public:
  using RequestId = uint64_t;

  // `loop` is IoThread::loop(); `address` is Resolve(endpoint).
  Client(EventLoop& loop, Endpoint endpoint, SocketAddress address, ClientOptions options);
  // Cancels what is under way. Not inside a handler.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  RequestId Fetch(ClientRequest request, ResponseHandlers handlers);
  // Of a request with streamed_bytes, after its first on_drained. The body ends with the last of
  // the announced bytes, or at EndBody() for kUnknownLength. A finished id is ignored.
  void Write(RequestId id, std::string_view bytes);
  void EndBody(RequestId id);
  // The same without copies: a pipe that BodyStream::PipeInto fills, and the call that sends what
  // it holds. Null for TLS and for kUnknownLength. Write() again only when the pipe is empty.
  std::shared_ptr<Pipe> UploadPipe(RequestId id);
  void WritePiped(RequestId id);
  // Handed over and not yet taken by the kernel.
  size_t pending_bytes(RequestId id) const;

  // Stops reading the response, so that the server is held back; what was read together with the
  // last on_data still comes. No read_timeout runs meanwhile.
  void Pause(RequestId id);
  void Resume(RequestId id);

  // Closes the request's connection, so that the server sees the client go. A finished id is
  // ignored.
  void Cancel(RequestId id);

  size_t num_active() const;
  size_t num_idle() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One request at a time on the calling thread, for tools and tests. Not thread-safe.
class BlockingClient {
 public:
  // Resolves the host: may block. An endpoint with tls and no context trusts the system's CAs.
  static Result<BlockingClient> Create(const Endpoint& endpoint, ClientOptions options);
  BlockingClient(BlockingClient&&);
  BlockingClient& operator=(BlockingClient&&);
  ~BlockingClient();

  struct Response {
    int status = 0;
    std::vector<std::pair<std::string, std::string>> headers;
    std::string body;
  };
  // Bodies over `max_body_bytes` are an error.
  Result<Response> Fetch(ClientRequest request, size_t max_body_bytes);

  // Hands the body over as it comes instead of keeping it; Response::body stays empty. `on_data`
  // returns whether to go on: false closes the connection, and the result is kCancelled.
  Result<Response> FetchStream(
      ClientRequest request,
      const std::function<bool(int status, std::string_view body_bytes)>& on_data);

 private:
  BlockingClient(std::unique_ptr<EventLoop> loop, std::unique_ptr<Client> client);
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Client> client_;
};

}  // namespace hayate::http
