#include "http/detail/connection.h"

#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "http/detail/response_format.h"
#include "http/detail/shard.h"

namespace hayate::http {
namespace {

constexpr std::chrono::milliseconds kLinger{1000};
// When draining, what a client may take from connecting to sending.
constexpr std::chrono::milliseconds kFirstRequestGrace{1000};

}  // namespace

Connection::Connection(Shard& shard, Socket socket)
    : shard_(shard), socket_(std::move(socket)), timer_(shard.loop(), [this] { OnTimer(); }) {}

Connection::~Connection() {
  if (exchange_ != nullptr) {
    exchange_->connection = nullptr;
    exchange_->closed = true;
    TellFinished(*exchange_);
  }
  DropStreamedBody();
}

bool Connection::Start() {
  constexpr uint32_t kEvents = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  if (!shard_.loop().Watch(socket_.fd(), kEvents, this).ok()) return false;
  SetReadDeadline(shard_.loop().After(shard_.options().header_timeout));
  return true;
}

void Connection::OnEvents(uint32_t events) {
  if ((events & (EPOLLERR | EPOLLHUP)) != 0) return Abort();
  if ((events & EPOLLOUT) != 0 && std::exchange(write_blocked_, false)) NeedTurnEnd();
  if ((events & (EPOLLIN | EPOLLRDHUP)) != 0) read_ready_ = true;
  if (socket_.has_tls()) {
    read_ready_ = true;
    if (std::exchange(write_blocked_, false)) NeedTurnEnd();
  }
  if ((events & EPOLLRDHUP) != 0) {
    peer_closed_ = true;
    if (state_ == State::kResponding) return Abort();
  }
  Advance();
}

void Connection::OnTurnEnd() {
  if (cut_) return Abort();
  in_turn_end_ = true;
  Advance();
  if (state_ != State::kClosed) Flush();
  in_turn_end_ = false;
  if (state_ == State::kClosed || output_.pending() > 0 || exchange_ == nullptr) return;
  if (const auto on_drained = std::exchange(exchange_->on_drained, nullptr)) on_drained();
}

void Connection::Refuse(int status, std::string_view reason) {
  keep_alive_ = false;
  send_body_ = true;
  body_ = std::string();
  const ServerOptions::ErrorBody error = shard_.RenderError(status, reason);
  state_ = State::kResponding;
  Send({.status = status, .content_type = error.content_type}, error.body);
}

void Connection::StartResponse(const ResponseMeta& meta, std::optional<uint64_t> length) {
  if (shard_.draining() || body_state_ != nullptr) keep_alive_ = false;
  ResponseFormat format{.content_length = length.value_or(0), .http_1_0_client = head_.http_1_0};
  const bool bodyless = meta.status < 200 || meta.status == 204 || meta.status == 304;
  if (bodyless) {
    send_body_ = false;
    format.body = ResponseBody::kNone;
  } else if (length) {
    format.body = ResponseBody::kLength;
  } else if (head_.http_1_0) {
    keep_alive_ = false;
    format.body = ResponseBody::kUntilClose;
  } else {
    format.body = ResponseBody::kChunked;
  }
  chunked_response_ = format.body == ResponseBody::kChunked;
  format.keep_alive = keep_alive_;
  if (exchange_ != nullptr) {
    format.fields = exchange_->fields;
    exchange_->answered.status = meta.status;
  }
  AppendResponseHead(output_.bytes(), meta, format, shard_.Date());
  NeedTurnEnd();
}

void Connection::Send(const ResponseMeta& meta, std::string_view body) {
  StartResponse(meta, send_body_ ? body.size() : meta.content_length.value_or(body.size()));
  if (send_body_) output_.bytes().append(body);
  if (send_body_ && exchange_ != nullptr) exchange_->answered.body_bytes = body.size();
  FinishResponse();
}

void Connection::SendUnanswered() {
  exchange_->phase = Exchange::Phase::kFinished;
  const ServerOptions::ErrorBody error = shard_.RenderError(500, "the request was not answered");
  Send({.status = 500, .content_type = error.content_type}, error.body);
}

void Connection::BeginStream(const ResponseMeta& meta) { StartResponse(meta, meta.content_length); }

void Connection::WriteStream(std::string_view bytes) {
  if (!send_body_ || bytes.empty()) return;
  exchange_->answered.body_bytes += bytes.size();
  if (chunked_response_) {
    AppendChunk(output_.bytes(), bytes);
  } else {
    output_.bytes().append(bytes);
  }
  NeedTurnEnd();
  if (output_.pending() <= shard_.options().max_pending_bytes) return;
  // A burst inside one turn is not the client's fault: see what the kernel takes first.
  if (!write_blocked_) Flush();
  if (output_.pending() > shard_.options().max_pending_bytes) Cut();
}

void Connection::EndStream() {
  if (send_body_ && chunked_response_) output_.bytes().append(kLastChunk);
  FinishResponse();
}

void Connection::Cut() {
  cut_ = true;
  exchange_->connection = nullptr;
  exchange_->closed = true;
  shard_.loop().RequestTurnEnd(this);  // this turn's end may be running already
}

void Connection::FinishResponse() {
  DropStreamedBody();
  if (exchange_ != nullptr) {
    exchange_->connection = nullptr;
    exchange_->answered.complete = true;
    TellFinished(*exchange_);
    exchange_.reset();
  }
  if (keep_alive_ && !shard_.draining()) {
    state_ = State::kReadHead;
    if (input_.empty()) input_ = std::string();  // an idle connection keeps no memory
    const auto& options = shard_.options();
    const auto wait = input_.empty() ? options.idle_timeout : options.header_timeout;
    SetReadDeadline(shard_.loop().After(wait));
  } else {
    state_ = State::kFlushing;
    SetReadDeadline(Timer::kNever);
  }
  NeedTurnEnd();
}

void Connection::NeedTurnEnd() {
  if (!in_turn_end_) shard_.loop().RequestTurnEnd(this);
}

void Connection::Flush() {
  const bool had_output = output_.pending() > 0;
  if (had_output && !write_blocked_) {
    size_t num_written = 0;
    switch (output_.Flush(socket_, num_written)) {
      case OutputBuffer::Outcome::kFailed:
        // The caller may be the handler: the connection goes at the end of the turn.
        cut_ = true;
        return shard_.loop().RequestTurnEnd(this);
      case OutputBuffer::Outcome::kBlocked:
        write_blocked_ = true;
        if (num_written > 0 || write_deadline_ns_ == Timer::kNever) {
          SetWriteDeadline(shard_.loop().After(shard_.options().write_timeout));
        }
        return;
      case OutputBuffer::Outcome::kDrained:
        SetWriteDeadline(Timer::kNever);
        break;
    }
  }
  if (output_.pending() > 0) return;
  if (state_ == State::kFlushing) return BeginLinger();
  if (state_ == State::kReadHead) {
    output_.Release();
    // Pipelined requests may have waited for the output to drain.
    if (had_output && (read_ready_ || !input_.empty())) shard_.loop().RequestTurnEnd(this);
  }
}

// Closing with unread input makes the kernel reset the connection, which can destroy the answer
// before the peer has read it. So the peer is told, and what it still sends is dropped for a while.
void Connection::BeginLinger() {
  socket_.ShutdownWrite();
  if (shard_.draining() && input_.empty() && !read_ready_) return Close();  // nothing is unread
  state_ = State::kLingering;
  input_ = std::string();
  read_ready_ = true;
  SetReadDeadline(shard_.loop().After(kLinger));
  shard_.loop().RequestTurnEnd(this);
}

void Connection::Drain() {
  if (state_ != State::kReadHead) return;
  // What the kernel holds is a request under way, though the loop has not told of it yet.
  read_ready_ = true;
  Advance();
  if (state_ != State::kReadHead || !input_.empty()) return;
  if (!used_) {
    const int64_t deadline_ns = shard_.loop().After(kFirstRequestGrace);
    return SetReadDeadline(std::min(read_deadline_ns_, deadline_ns));
  }
  if (output_.pending() == 0) return Close();
  state_ = State::kFlushing;
}

void Connection::SetReadDeadline(int64_t deadline_ns) {
  read_deadline_ns_ = deadline_ns;
  timer_.Set(std::min(read_deadline_ns_, write_deadline_ns_));
}

void Connection::SetWriteDeadline(int64_t deadline_ns) {
  write_deadline_ns_ = deadline_ns;
  timer_.Set(std::min(read_deadline_ns_, write_deadline_ns_));
}

void Connection::OnTimer() {
  const int64_t now_ns = shard_.loop().now_ns();
  if (now_ns >= write_deadline_ns_) return Abort();
  if (now_ns >= read_deadline_ns_) {
    // The answer before is still on its way: only the write timeout counts.
    if (state_ == State::kReadHead && output_.pending() > 0) {
      return SetReadDeadline(shard_.loop().After(shard_.options().idle_timeout));
    }
    if (state_ == State::kResponding) {
      return EndStreamedBody(
          Error(ErrorCode::kDeadlineExceeded, "the request took too long to arrive"));
    }
    const bool in_request = state_ == State::kReadBody || !input_.empty();
    if (in_request && state_ != State::kLingering) {
      return Refuse(408, "the request took too long to arrive");
    }
    return Close();
  }
  timer_.Set(std::min(read_deadline_ns_, write_deadline_ns_));
}

void Connection::Abort() {
  if (state_ == State::kClosed) return;
  const std::shared_ptr<Exchange> exchange = std::move(exchange_);
  DropStreamedBody();
  Close();
  if (exchange == nullptr) return;
  exchange->connection = nullptr;
  exchange->closed = true;
  if (const auto on_close = std::exchange(exchange->on_close, nullptr)) on_close();
  TellFinished(*exchange);
}

void Connection::TellFinished(Exchange& exchange) {
  if (const auto on_finish = std::exchange(exchange.on_finish, nullptr)) {
    on_finish(exchange.answered);
  }
}

void Connection::Close() {
  state_ = State::kClosed;
  timer_.Set(Timer::kNever);
  shard_.loop().Unwatch(socket_.fd());
  socket_.Close();
  shard_.Remove(this);
}

}  // namespace hayate::http
