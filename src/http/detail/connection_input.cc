// Reading: from bytes to the handler. The rest of Connection is in connection.cc.

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "http/detail/connection.h"
#include "http/detail/pipe.h"
#include "http/detail/shard.h"

namespace hayate::http {
namespace {

// Reads and requests of one connection in one turn; the rest waits so that others get theirs.
constexpr int kMaxStepsPerTurn = 32;
// The same in bytes: about a millisecond.
constexpr size_t kMaxBytesPerTurn = 4 << 20;
// While more than this is unsent, pipelined requests are not begun.
constexpr size_t kMaxPipelinedOutput = 64 << 10;
// A Content-Length is a claim. Room for a body up to here is taken at once, and costs addresses
// alone until bytes arrive. A larger one gets its whole room when so many have come: moving tens of
// megabytes again and again, as for a string that grows, would hold up the other connections.
constexpr size_t kMaxBodyReserve = 2 << 20;
// Of a head: what comes with it of a body is copied more than once.
constexpr size_t kHeadReadBytes = 64 << 10;

}  // namespace

void Connection::Advance() {
  read_in_turn_ = 0;
  for (int step = 0; step < kMaxStepsPerTurn && read_in_turn_ < kMaxBytesPerTurn; ++step) {
    switch (state_) {
      case State::kReadHead:
        if (!StepHead()) return;
        break;
      case State::kReadBody:
        if (!StepBody()) return;
        break;
      case State::kLingering:
        if (!StepLinger()) return;
        break;
      case State::kResponding:
        if (body_state_ == nullptr || !StepStreamedBody()) return;
        break;
      case State::kFlushing:
      case State::kClosed:
        return;
    }
  }
  shard_.loop().RequestTurnEnd(this);
}

bool Connection::StepHead() {
  if (output_.pending() > kMaxPipelinedOutput) return false;  // goes on when it is flushed
  const size_t limit = shard_.options().max_header_bytes;
  switch (scanner_.Scan(input_)) {
    case HeadScanner::Outcome::kMalformed:
      Refuse(400, "header line does not end with CR LF");
      return false;
    case HeadScanner::Outcome::kComplete:
      if (scanner_.head_bytes() > limit) break;
      BeginRequest(scanner_.head_bytes());
      return true;
    case HeadScanner::Outcome::kNeedMore: {
      if (input_.size() > limit) break;
      std::string_view bytes;
      if (!ReadMore(bytes)) return false;
      if (input_.empty()) {
        SetReadDeadline(shard_.loop().After(shard_.options().header_timeout));
      }
      input_.append(bytes);
      return true;
    }
  }
  Refuse(431, "request header too large");
  return false;
}

// False when nothing came; the connection may then be closed.
bool Connection::ReadMore(std::string_view& bytes) {
  if (!read_ready_) return false;
  std::span<char> scratch = shard_.scratch();
  if (state_ == State::kReadHead) scratch = scratch.first(kHeadReadBytes);
  const IoResult result = socket_.Read(scratch);
  switch (result.kind) {
    case IoResult::Kind::kOk:
      // A short read emptied the socket: the next byte is a new edge. Only a FIN behind it is not.
      if (result.num_bytes < scratch.size() && !peer_closed_ && !socket_.has_tls()) {
        read_ready_ = false;
      }
      bytes = std::string_view(scratch.data(), result.num_bytes);
      read_in_turn_ += result.num_bytes;
      return true;
    case IoResult::Kind::kWouldBlock:
      read_ready_ = false;
      return false;
    case IoResult::Kind::kEnd:
      if (state_ == State::kResponding) {
        Abort();
      } else if (state_ != State::kReadHead || output_.pending() == 0) {
        Close();
      } else {
        state_ = State::kFlushing;
      }
      return false;
    case IoResult::Kind::kError:
      Abort();
      return false;
  }
  return false;
}

void Connection::BeginRequest(size_t head_bytes) {
  used_ = true;
  head_text_.assign(input_, 0, head_bytes);
  input_.erase(0, head_bytes);
  scanner_.Reset();
  keep_alive_ = false;  // until the head is known to be sound
  if (const ParseError error = ParseRequestHead(head_text_, head_)) {
    return Refuse(error.status, error.reason);
  }
  if (head_.content_length > shard_.options().max_body_bytes) {
    return Refuse(413, "request body too large");
  }
  keep_alive_ = head_.keep_alive;
  if (head_.framing == BodyFraming::kNone) return Dispatch();

  state_ = State::kReadBody;
  body_remaining_ = head_.content_length;
  decoder_ = ChunkedDecoder();
  body_.reserve(std::min<size_t>(head_.content_length + kBodyPadding, kMaxBodyReserve));
  SetReadDeadline(shard_.loop().After(shard_.options().body_timeout));
  if (head_.expects_continue && input_.empty()) {
    output_.bytes().append("HTTP/1.1 100 Continue\r\n\r\n");
    NeedTurnEnd();
  }
}

bool Connection::StepBody() {
  std::string_view bytes = input_;
  const bool buffered = !bytes.empty();
  if (!buffered && !ReadMore(bytes)) return false;
  const size_t available = bytes.size();
  // TakeBody may refuse, which drops input_: what it looks at is held apart.
  const std::string held = buffered ? std::exchange(input_, {}) : std::string();
  if (buffered) bytes = held;
  TakeBody(bytes);
  if (state_ == State::kReadBody) {
    input_.assign(bytes);
    if (BodyComplete() || body_.size() > shard_.options().stream_body_bytes) Dispatch();
  }
  return available > 0;
}

void Connection::TakeBody(std::string_view& bytes) {
  if (head_.framing == BodyFraming::kLength) {
    const auto count = static_cast<size_t>(std::min<uint64_t>(body_remaining_, bytes.size()));
    if (body_.size() + count > body_.capacity()) {
      const size_t held = std::max(shard_.options().stream_body_bytes, body_.size() + count);
      body_.reserve(std::min<size_t>(head_.content_length, held) + kBodyPadding);
    }
    body_.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    body_remaining_ -= count;
    return;
  }
  while (!bytes.empty() && decoder_.state() == ChunkedDecoder::State::kNeedMore) {
    const std::string_view data = decoder_.Take(bytes);
    if (body_.size() + data.size() > shard_.options().max_body_bytes) {
      return Refuse(413, "request body too large");
    }
    body_.append(data);
  }
  if (decoder_.state() == ChunkedDecoder::State::kMalformed) Refuse(400, "malformed chunk");
}

bool Connection::BodyComplete() const {
  switch (head_.framing) {
    case BodyFraming::kLength:
      return body_remaining_ == 0;
    case BodyFraming::kChunked:
      return decoder_.state() == ChunkedDecoder::State::kDone;
    default:
      return true;
  }
}

void Connection::Dispatch() {
  state_ = State::kResponding;
  SetReadDeadline(Timer::kNever);
  body_.reserve(body_.size() + kBodyPadding);
  exchange_ = std::make_shared<Exchange>();
  exchange_->connection = this;
  if (peer_.empty()) peer_ = socket_.PeerAddress();
  Request request{.method = head_.method,
                  .path = head_.path,
                  .query = head_.query,
                  .headers = HeaderView(head_.headers),
                  .body = std::move(body_),
                  .peer = peer_,
                  .thread = shard_.thread()};
  if (head_.framing != BodyFraming::kChunked) request.body_bytes = head_.content_length;
  if (!BodyComplete()) {
    body_state_ = std::make_shared<BodyState>();
    body_state_->connection = this;
    body_taken_ = request.body.size();
    request.rest.emplace(body_state_);
  }
  send_body_ = head_.method != "HEAD";
  shard_.handler()(request, ResponseWriter(exchange_));
  body_ = std::string();
  head_text_ = std::string();
  head_.headers = {};
  if (state_ == State::kResponding && peer_closed_) Abort();
}

void Connection::ResumeBody() {
  SetReadDeadline(shard_.loop().After(shard_.options().body_timeout));
  shard_.loop().RequestTurnEnd(this);
}

// Hands the pieces straight from the scratch buffer to the handler.
bool Connection::StepStreamedBody() {
  const std::shared_ptr<BodyState> state = body_state_;
  if (state->paused) {
    SetReadDeadline(Timer::kNever);
    return false;
  }
  if (state->pipe != nullptr) return StepPipedBody(*state);
  std::string_view bytes;
  if (!ReadMore(bytes)) return false;
  SetReadDeadline(shard_.loop().After(shard_.options().body_timeout));
  while (!bytes.empty() && state->connection != nullptr && !BodyComplete()) {
    std::string_view data = bytes;
    if (head_.framing == BodyFraming::kLength) {
      data =
          bytes.substr(0, static_cast<size_t>(std::min<uint64_t>(body_remaining_, bytes.size())));
      bytes.remove_prefix(data.size());
      body_remaining_ -= data.size();
    } else {
      data = decoder_.Take(bytes);
      if (decoder_.state() == ChunkedDecoder::State::kMalformed) {
        EndStreamedBody(Error(ErrorCode::kInvalidArgument, "malformed chunk"));
        return false;
      }
    }
    body_taken_ += data.size();
    if (body_taken_ > shard_.options().max_body_bytes) {
      EndStreamedBody(Error(ErrorCode::kPayloadTooLarge, "request body too large"));
      return false;
    }
    if (!data.empty() && state->on_data) state->on_data(data);
  }
  if (state->connection == nullptr) return false;
  input_.append(bytes);  // the next request, pipelined
  if (BodyComplete()) EndStreamedBody(OkStatus());
  return state_ == State::kResponding;
}

// The length of such a body is known, and was compared with its bound before it began.
bool Connection::StepPipedBody(BodyState& state) {
  if (!read_ready_ || state.pipe->pending() > 0) return false;
  const IoResult result = state.pipe->FillFrom(socket_, static_cast<size_t>(body_remaining_));
  switch (result.kind) {
    case IoResult::Kind::kOk:
      break;
    case IoResult::Kind::kWouldBlock:
      read_ready_ = false;
      return false;
    case IoResult::Kind::kEnd:
      Abort();
      return false;
    case IoResult::Kind::kError:
      state.pipe.reset();
      return true;  // reading says what is wrong, if anything is
  }
  SetReadDeadline(shard_.loop().After(shard_.options().body_timeout));
  read_in_turn_ += result.num_bytes;
  body_remaining_ -= result.num_bytes;
  body_taken_ += result.num_bytes;
  if (state.on_piped) state.on_piped(result.num_bytes);
  if (state.connection == nullptr) return false;
  if (BodyComplete()) EndStreamedBody(OkStatus());
  return state_ == State::kResponding;
}

void Connection::EndStreamedBody(const Status& status) {
  SetReadDeadline(Timer::kNever);
  if (!status.ok()) keep_alive_ = false;
  const std::shared_ptr<BodyState> state = std::move(body_state_);
  if (state == nullptr) return;
  state->connection = nullptr;
  if (const auto on_end = std::exchange(state->on_end, nullptr)) on_end(status);
}

// The answer came first, or the client went away.
void Connection::DropStreamedBody() {
  if (body_state_ == nullptr) return;
  body_state_->connection = nullptr;
  body_state_.reset();
  keep_alive_ = false;
}

bool Connection::StepLinger() {
  std::string_view dropped;
  return ReadMore(dropped);
}

}  // namespace hayate::http
