#pragma once
// The client's side of one connection; at most one request at a time.
//
//   kConnecting → kIdle ⇄ (kHead → kBody) → closed

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "http/client.h"
#include "http/detail/chunked.h"
#include "http/detail/head.h"
#include "http/detail/output_buffer.h"
#include "http/detail/socket.h"
#include "http/event_loop.h"

namespace hayate::http {

class ClientConnection;

// What a connection tells its owner. Both calls may close or hand over other connections.
class ClientConnectionOwner {
 public:
  // The request is complete; the connection may take another one when `reusable`, and is closed by
  // the owner otherwise.
  enum class Reuse { kReusable, kSpent };
  virtual void OnComplete(ClientConnection* connection, Reuse reuse) = 0;
  // The connection failed, busy or idle.
  virtual void OnFailed(ClientConnection* connection, const Status& status) = 0;
  virtual std::span<char> Scratch() = 0;

 protected:
  ~ClientConnectionOwner() = default;
};

class ClientConnection final : public Watcher {
 public:
  ClientConnection(EventLoop& loop, ClientConnectionOwner& owner, const Endpoint& endpoint,
                   const ClientOptions& options);
  ~ClientConnection() override;

  // Begins to connect. Failures arrive by OnFailed, never inside this call.
  void Connect(const SocketAddress& address);
  // Idle or connecting connections only. `id` is the owner's name for the request.
  void Start(Client::RequestId id, ClientRequest request, ResponseHandlers handlers);
  // Takes the handlers, so that nothing more is delivered.
  ResponseHandlers TakeHandlers() { return std::move(handlers_); }
  // False when an idle connection has been closed by the server.
  bool StillOpen();
  void Close();

  // See Client.
  void Write(std::string_view bytes);
  void EndBody();
  std::shared_ptr<Pipe> UploadPipe();
  void WritePiped();
  size_t pending_bytes() const;
  void Pause();
  void Resume();

  Client::RequestId id() const { return id_; }

  void OnEvents(uint32_t events) override;
  void OnTurnEnd() override;

 private:
  enum class State { kConnecting, kIdle, kHead, kBody, kClosed };

  bool busy() const { return state_ == State::kHead || state_ == State::kBody; }
  void Read();
  void Consume(std::string_view bytes);
  // Returns whether the head is complete; `bytes` then is what follows it.
  bool ConsumeHead(std::string_view& bytes);
  void ConsumeBody(std::string_view& bytes);
  void OnEnd();
  void Complete(std::string_view leftover);
  void BeginRequest();
  void Flush();
  OutputBuffer::Outcome FlushPieces();
  OutputBuffer::Outcome FlushPipe();
  void Fail(ErrorCode code, std::string_view what);
  void SetTimeout(std::chrono::milliseconds timeout, std::string_view waiting_for);

  EventLoop& loop_;
  ClientConnectionOwner& owner_;
  const Endpoint& endpoint_;
  const ClientOptions& options_;
  Socket socket_;
  Timer timer_;
  std::string_view waiting_for_;  // what the timer bounds, for its message

  State state_ = State::kConnecting;
  bool request_waiting_ = false;  // started while connecting
  bool write_blocked_ = false;
  bool read_ready_ = false;
  bool peer_closed_ = false;  // FIN came; unread bytes may precede it
  bool paused_ = false;
  bool sent_ = false;  // on_sent has run for the request in hand
  bool fresh_ = true;  // has carried no request before this one
  Status deferred_failure_;

  Client::RequestId id_ = 0;
  std::string method_;
  ResponseHandlers handlers_;
  OutputBuffer output_;
  // Written after output_, from where they lie.
  ClientRequest::SharedBody pieces_;
  size_t pieces_left_ = 0;
  // Written after both.
  std::shared_ptr<Pipe> pipe_;
  bool handed_over_ = false;  // on_drained is due when the kernel has all of it
  bool chunked_upload_ = false;
  uint64_t upload_left_ = 0;  // announced and not yet given to Write, or out of the pipe
  std::string input_;         // an incomplete head
  HeadScanner scanner_;
  ResponseHead head_;
  uint64_t body_remaining_ = 0;
  ChunkedDecoder decoder_;
};

}  // namespace hayate::http
