#pragma once
// The server's side of one connection: a state machine driven by the loop.
//
//   kReadHead → kReadBody → kResponding → kReadHead …     keep-alive
//                                       ↘ kFlushing → kLingering → closed
//
// One request is in hand at a time. Pipelined ones wait in the input buffer and in the kernel,
// which keeps their answers in order and their number bounded. While a request is in hand nothing
// is read: the kernel still reports that the peer closed.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "http/detail/chunked.h"
#include "http/detail/exchange.h"
#include "http/detail/head.h"
#include "http/detail/output_buffer.h"
#include "http/detail/socket.h"
#include "http/event_loop.h"
#include "http/response_writer.h"

namespace hayate::http {

class Shard;

class Connection final : public Watcher {
 public:
  Connection(Shard& shard, Socket socket);
  ~Connection() override;

  // Begins to serve. False when the kernel refuses to watch the socket.
  bool Start();
  // Answers `status` without reading a request, then closes.
  void Refuse(int status, std::string_view reason);
  // Closes when idle; otherwise the answer in hand is the last. A client that has just connected
  // has a moment to send its request.
  void Drain();
  // Closes at once; tells the exchange.
  void Abort();

  // For ResponseWriter. None of these closes the connection before the end of the turn.
  void Send(const ResponseMeta& meta, std::string_view body);
  void SendUnanswered();
  void BeginStream(const ResponseMeta& meta);
  void WriteStream(std::string_view bytes);
  void EndStream();
  void Cut();
  size_t pending_bytes() const { return output_.pending(); }
  // For BodyStream.
  void ResumeBody();
  // Whether the rest of the body lies in the socket as it is.
  bool pipeable() const {
    return head_.framing == BodyFraming::kLength && input_.empty() && !socket_.has_tls();
  }

  void OnEvents(uint32_t events) override;
  void OnTurnEnd() override;

 private:
  enum class State { kReadHead, kReadBody, kResponding, kFlushing, kLingering, kClosed };

  // Reading. Each step returns whether another one may make progress in this turn.
  void Advance();
  bool StepHead();
  bool StepBody();
  bool StepStreamedBody();
  bool StepPipedBody(BodyState& state);
  bool StepLinger();
  bool ReadMore(std::string_view& bytes);
  void BeginRequest(size_t head_bytes);
  // Takes body bytes from the front of `bytes`.
  void TakeBody(std::string_view& bytes);
  bool BodyComplete() const;
  void Dispatch();
  void EndStreamedBody(const Status& status);
  void DropStreamedBody();

  // Writing.
  void StartResponse(const ResponseMeta& meta, std::optional<uint64_t> length);
  void FinishResponse();
  static void TellFinished(Exchange& exchange);
  void Flush();
  void BeginLinger();
  void NeedTurnEnd();

  void SetReadDeadline(int64_t deadline_ns);
  void SetWriteDeadline(int64_t deadline_ns);
  void OnTimer();
  void Close();

  Shard& shard_;
  Socket socket_;
  Timer timer_;
  int64_t read_deadline_ns_ = Timer::kNever;
  int64_t write_deadline_ns_ = Timer::kNever;

  State state_ = State::kReadHead;
  size_t read_in_turn_ = 0;  // bytes
  bool read_ready_ = true;  // the kernel may hold bytes: edge-triggered, so this must be remembered
  bool write_blocked_ = false;  // until the next EPOLLOUT
  bool peer_closed_ = false;    // FIN came; unread bytes may precede it
  bool used_ = false;           // a request came
  bool in_turn_end_ = false;
  bool cut_ = false;  // abort at the end of the turn
  bool keep_alive_ = true;
  bool chunked_response_ = false;
  bool send_body_ = true;  // false: an answer to HEAD, or a status without a body

  std::string input_;  // received and not yet parsed
  HeadScanner scanner_;
  std::string head_text_;  // what head_ points into, from the complete head to the handler's return
  RequestHead head_;
  std::string body_;
  uint64_t body_remaining_ = 0;  // for BodyFraming::kLength
  uint64_t body_taken_ = 0;      // decoded so far
  ChunkedDecoder decoder_;
  OutputBuffer output_;
  std::string peer_;                       // the other end's address, once a request came
  std::shared_ptr<Exchange> exchange_;     // of the request in hand
  std::shared_ptr<BodyState> body_state_;  // while its body is still arriving
};

}  // namespace hayate::http
