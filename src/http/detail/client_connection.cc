#include "http/detail/client_connection.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "http/detail/pipe.h"

namespace hayate::http {
namespace {

constexpr int kMaxReadsPerTurn = 16;
// Up to here one copy is cheaper than a second system call.
constexpr size_t kMaxCopiedPieces = 32 << 10;

void AppendRequest(std::string& out, const ClientRequest& request, const Endpoint& endpoint) {
  out.append(request.method).append(" ").append(request.target).append(" HTTP/1.1\r\nHost: ");
  out.append(endpoint.ToString()).append("\r\n");
  for (const auto& [name, value] : request.headers) {
    out.append(name).append(": ").append(value).append("\r\n");
  }
  out.append(request.raw_fields);
  const size_t known = request.body.size() + request.shared_body.size();
  if (request.streamed_bytes == ClientRequest::kUnknownLength) {
    out.append("Transfer-Encoding: chunked\r\n\r\n");
    AppendChunk(out, request.body);
    return;
  }
  const uint64_t length = known + request.streamed_bytes;
  if (length > 0 || request.method == "POST" || request.method == "PUT") {
    out.append("Content-Length: ").append(std::to_string(length)).append("\r\n");
  }
  out.append("\r\n").append(request.body);
}

}  // namespace

ClientConnection::ClientConnection(EventLoop& loop, ClientConnectionOwner& owner,
                                   const Endpoint& endpoint, const ClientOptions& options)
    : loop_(loop), owner_(owner), endpoint_(endpoint), options_(options), timer_(loop, [this] {
        Fail(ErrorCode::kDeadlineExceeded, fmt::format("timed out waiting for {}", waiting_for_));
      }) {}

ClientConnection::~ClientConnection() { Close(); }

void ClientConnection::Connect(const SocketAddress& address) {
  auto socket = Socket::Connect(address);
  Status status = socket.status();
  if (socket.ok()) {
    socket_ = std::move(*socket);
    status = loop_.Watch(socket_.fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, this);
    if (endpoint_.tls && options_.tls == nullptr) {
      status = Error(ErrorCode::kInvalidArgument, "{}: no TLS is set up", endpoint_.ToString());
    } else if (endpoint_.tls) {
      socket_.ConnectTls(options_.tls, endpoint_.host);
    }
  }
  if (!status.ok()) {
    deferred_failure_ = std::move(status);
    loop_.RequestTurnEnd(this);
    return;
  }
  SetTimeout(options_.connect_timeout, "the connection");
}

void ClientConnection::Start(Client::RequestId id, ClientRequest request,
                             ResponseHandlers handlers) {
  id_ = id;
  handlers_ = std::move(handlers);
  AppendRequest(output_.bytes(), request, endpoint_);
  chunked_upload_ = request.streamed_bytes == ClientRequest::kUnknownLength;
  upload_left_ = request.streamed_bytes;
  handed_over_ = true;
  if (request.shared_body.size() <= kMaxCopiedPieces || chunked_upload_) {
    for (std::string_view piece : request.shared_body.pieces) {
      if (chunked_upload_) {
        AppendChunk(output_.bytes(), piece);
      } else {
        output_.bytes().append(piece);
      }
    }
  } else {
    pieces_left_ = request.shared_body.size();
    pieces_ = std::move(request.shared_body);
  }
  method_ = std::move(request.method);
  if (state_ == State::kConnecting) {
    request_waiting_ = true;
    return;
  }
  CHECK(state_ == State::kIdle) << "a connection carries one request at a time";
  BeginRequest();
}

void ClientConnection::BeginRequest() {
  state_ = State::kHead;
  sent_ = false;
  SetTimeout(options_.head_timeout, "the response");
  loop_.RequestTurnEnd(this);
}

void ClientConnection::Write(std::string_view bytes) {
  CHECK(pieces_left_ == 0) << "Write before the first on_drained";
  if (chunked_upload_) {
    AppendChunk(output_.bytes(), bytes);
  } else {
    CHECK(bytes.size() <= upload_left_) << "more body than announced";
    CHECK(pipe_ == nullptr || pipe_->pending() == 0) << "Write while the pipe holds bytes";
    upload_left_ -= bytes.size();
    // What the kernel takes at once need not be copied first.
    if (sent_ && !write_blocked_ && output_.pending() == 0) {
      const IoResult result = socket_.Write(bytes);
      if (result.kind == IoResult::Kind::kOk) bytes.remove_prefix(result.num_bytes);
    }
    output_.bytes().append(bytes);
  }
  handed_over_ = true;
  loop_.RequestTurnEnd(this);
}

std::shared_ptr<Pipe> ClientConnection::UploadPipe() {
  if (chunked_upload_ || socket_.has_tls()) return nullptr;
  if (pipe_ == nullptr) pipe_ = Pipe::Create();
  return pipe_;
}

void ClientConnection::WritePiped() {
  CHECK(pieces_left_ == 0) << "WritePiped before the first on_drained";
  CHECK(pipe_->pending() <= upload_left_) << "more body than announced";
  if (sent_ && !write_blocked_ && output_.pending() == 0) (void)FlushPipe();
  handed_over_ = true;
  loop_.RequestTurnEnd(this);
}

size_t ClientConnection::pending_bytes() const {
  return output_.pending() + pieces_left_ + (pipe_ == nullptr ? 0 : pipe_->pending());
}

void ClientConnection::EndBody() {
  if (!chunked_upload_) return;
  upload_left_ = 0;
  handed_over_ = true;
  output_.bytes().append(kLastChunk);
  loop_.RequestTurnEnd(this);
}

void ClientConnection::Pause() {
  paused_ = true;
  timer_.Set(Timer::kNever);
}

void ClientConnection::Resume() {
  if (!std::exchange(paused_, false)) return;
  SetTimeout(options_.read_timeout, "more of the body");
  loop_.RequestTurnEnd(this);
}

bool ClientConnection::StillOpen() {
  char byte;  // not the scratch buffer: a callback that looks at it may be asking
  return socket_.Read({&byte, 1}).kind == IoResult::Kind::kWouldBlock;
}

void ClientConnection::Close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  timer_.Set(Timer::kNever);
  if (!socket_.open()) return;
  loop_.Unwatch(socket_.fd());
  socket_.Close();
}

void ClientConnection::OnEvents(uint32_t events) {
  if (state_ == State::kConnecting) {
    if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) == 0) return;
    if (const int error = socket_.PendingError(); error != 0) {
      return Fail(ErrorCode::kUnavailable, std::strerror(error));
    }
    timer_.Set(Timer::kNever);
    state_ = State::kIdle;
    if (std::exchange(request_waiting_, false)) BeginRequest();
  } else if ((events & EPOLLOUT) != 0 && std::exchange(write_blocked_, false)) {
    loop_.RequestTurnEnd(this);
  }
  if ((events & (EPOLLRDHUP | EPOLLERR | EPOLLHUP)) != 0) peer_closed_ = true;
  if (socket_.has_tls() && std::exchange(write_blocked_, false)) loop_.RequestTurnEnd(this);
  if (socket_.has_tls() || (events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) != 0) {
    read_ready_ = true;
    Read();
  }
}

void ClientConnection::OnTurnEnd() {
  if (!deferred_failure_.ok()) {
    return Fail(deferred_failure_.code(), std::string(deferred_failure_.message()));
  }
  if (busy()) Flush();
  if (state_ != State::kClosed && read_ready_) Read();
}

OutputBuffer::Outcome ClientConnection::FlushPieces() {
  while (pieces_left_ > 0) {
    std::string_view& piece =
        pieces_.pieces[0].empty()
            ? pieces_.pieces[1].empty() ? pieces_.pieces[2] : pieces_.pieces[1]
            : pieces_.pieces[0];
    const IoResult result = socket_.Write(piece);
    if (result.kind == IoResult::Kind::kWouldBlock) return OutputBuffer::Outcome::kBlocked;
    if (result.kind != IoResult::Kind::kOk) return OutputBuffer::Outcome::kFailed;
    piece.remove_prefix(result.num_bytes);
    pieces_left_ -= result.num_bytes;
  }
  pieces_ = {};
  return OutputBuffer::Outcome::kDrained;
}

OutputBuffer::Outcome ClientConnection::FlushPipe() {
  while (pipe_ != nullptr && pipe_->pending() > 0) {
    const IoResult result = pipe_->DrainTo(socket_);
    if (result.kind == IoResult::Kind::kWouldBlock) return OutputBuffer::Outcome::kBlocked;
    if (result.kind != IoResult::Kind::kOk) return OutputBuffer::Outcome::kFailed;
    upload_left_ -= result.num_bytes;
  }
  return OutputBuffer::Outcome::kDrained;
}

void ClientConnection::Flush() {
  if (write_blocked_ || !handed_over_) return;
  if (!std::exchange(sent_, true) && handlers_.on_sent) {
    handlers_.on_sent(fresh_ ? ResponseHandlers::Via::kFresh : ResponseHandlers::Via::kReused);
    if (state_ == State::kClosed) return;
  }
  size_t num_written = 0;
  OutputBuffer::Outcome outcome = output_.Flush(socket_, num_written);
  if (outcome == OutputBuffer::Outcome::kDrained) outcome = FlushPieces();
  if (outcome == OutputBuffer::Outcome::kDrained) outcome = FlushPipe();
  switch (outcome) {
    case OutputBuffer::Outcome::kDrained:
      output_.Release();
      handed_over_ = false;
      if (handlers_.on_drained) handlers_.on_drained();
      break;
    case OutputBuffer::Outcome::kBlocked:
      write_blocked_ = true;
      break;
    case OutputBuffer::Outcome::kFailed:
      // An early answer, such as 413, may still be readable.
      write_blocked_ = true;
      read_ready_ = true;
      break;
  }
}

void ClientConnection::Read() {
  for (int i = 0; i < kMaxReadsPerTurn && state_ != State::kClosed; ++i) {
    if (paused_ || !read_ready_) return;
    const std::span<char> scratch = owner_.Scratch();
    const IoResult result = socket_.Read(scratch);
    switch (result.kind) {
      case IoResult::Kind::kOk:
        // A short read emptied the socket: the next byte is a new edge. Only a FIN behind it is
        // not.
        if (result.num_bytes < scratch.size() && !peer_closed_ && !socket_.has_tls()) {
          read_ready_ = false;
        }
        Consume(std::string_view(scratch.data(), result.num_bytes));
        break;
      case IoResult::Kind::kWouldBlock:
        read_ready_ = false;
        return;
      case IoResult::Kind::kEnd:
        return OnEnd();
      case IoResult::Kind::kError:
        return Fail(ErrorCode::kUnavailable, std::strerror(result.error));
    }
  }
  if (state_ != State::kClosed) loop_.RequestTurnEnd(this);
}

// Every callback may cancel the request, which closes this connection.
void ClientConnection::Consume(std::string_view bytes) {
  if (state_ == State::kIdle) return Fail(ErrorCode::kDataLoss, "bytes without a request");
  if (state_ == State::kHead && !ConsumeHead(bytes)) return;
  if (state_ != State::kBody) return;
  if (head_.framing == BodyFraming::kNone) return Complete(bytes);
  if (!bytes.empty() && !paused_) SetTimeout(options_.read_timeout, "more of the body");
  ConsumeBody(bytes);
}

bool ClientConnection::ConsumeHead(std::string_view& bytes) {
  input_.append(bytes);
  while (true) {
    const HeadScanner::Outcome outcome = scanner_.Scan(input_);
    const size_t seen =
        outcome == HeadScanner::Outcome::kComplete ? scanner_.head_bytes() : input_.size();
    if (outcome == HeadScanner::Outcome::kMalformed || seen > options_.max_header_bytes) {
      Fail(ErrorCode::kDataLoss, "malformed or too large response head");
      return false;
    }
    if (outcome == HeadScanner::Outcome::kNeedMore) return false;
    const size_t head_bytes = std::exchange(scanner_, HeadScanner()).head_bytes();
    const std::string head_text = input_.substr(0, head_bytes);
    input_.erase(0, head_bytes);
    if (const ParseError error = ParseResponseHead(head_text, method_, head_)) {
      Fail(ErrorCode::kDataLoss, error.reason);
      return false;
    }
    if (head_.status < 200) continue;  // an interim answer, such as 100 Continue
    bytes.remove_prefix(bytes.size() - input_.size());
    input_ = std::string();
    state_ = State::kBody;
    body_remaining_ = head_.content_length;
    decoder_ = ChunkedDecoder();
    SetTimeout(options_.read_timeout, "the body");
    if (handlers_.on_head) handlers_.on_head(head_.status, HeaderView(head_.headers));
    return state_ == State::kBody;
  }
}

void ClientConnection::ConsumeBody(std::string_view& bytes) {
  while (!bytes.empty() && state_ == State::kBody) {
    std::string_view data;
    bool complete = false;
    if (head_.framing == BodyFraming::kChunked) {
      data = decoder_.Take(bytes);
      if (decoder_.state() == ChunkedDecoder::State::kMalformed) {
        return Fail(ErrorCode::kDataLoss, "malformed chunk");
      }
      complete = decoder_.state() == ChunkedDecoder::State::kDone;
    } else {
      const bool until_close = head_.framing == BodyFraming::kUntilClose;
      const uint64_t limit = until_close ? bytes.size() : body_remaining_;
      data = bytes.substr(0, static_cast<size_t>(std::min<uint64_t>(limit, bytes.size())));
      bytes.remove_prefix(data.size());
      if (!until_close) body_remaining_ -= data.size();
      complete = !until_close && body_remaining_ == 0;
    }
    if (!data.empty() && handlers_.on_data) handlers_.on_data(data);
    if (complete && state_ == State::kBody) return Complete(bytes);
  }
}

void ClientConnection::OnEnd() {
  if (state_ == State::kBody && head_.framing == BodyFraming::kUntilClose) return Complete({});
  Fail(ErrorCode::kUnavailable,
       state_ == State::kBody ? "closed in the middle of the body" : "closed before the response");
}

void ClientConnection::Complete(std::string_view leftover) {
  timer_.Set(Timer::kNever);
  const bool reusable = head_.keep_alive && leftover.empty() && pending_bytes() == 0 &&
                        upload_left_ == 0 && !peer_closed_;
  pipe_.reset();
  paused_ = false;
  fresh_ = false;
  state_ = State::kIdle;
  input_ = std::string();
  scanner_.Reset();
  owner_.OnComplete(this, reusable ? ClientConnectionOwner::Reuse::kReusable
                                   : ClientConnectionOwner::Reuse::kSpent);
}

void ClientConnection::Fail(ErrorCode code, std::string_view what) {
  Close();
  owner_.OnFailed(this, Error(code, "{}: {}", endpoint_.ToString(), what));
}

void ClientConnection::SetTimeout(std::chrono::milliseconds timeout, std::string_view waiting_for) {
  waiting_for_ = waiting_for;
  timer_.Set(loop_.After(timeout));
}

}  // namespace hayate::http
