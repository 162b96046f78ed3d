#include "http/detail/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "http/detail/tls_session.h"

namespace hayate::http {
namespace {

IoResult FromCall(ssize_t returned, IoResult::Kind at_zero) {
  if (returned > 0) return {IoResult::Kind::kOk, static_cast<size_t>(returned)};
  if (returned == 0) return {at_zero};
  if (errno == EAGAIN || errno == EWOULDBLOCK) {
    return {IoResult::Kind::kWouldBlock};
  }
  return {IoResult::Kind::kError, 0, errno};
}

void SetOption(int fd, int level, int option) {
  const int on = 1;
  setsockopt(fd, level, option, &on, sizeof(on));
}

}  // namespace

Socket::Socket() = default;
Socket::Socket(int fd) : fd_(fd) {}
Socket::Socket(Socket&& other) : fd_(std::exchange(other.fd_, -1)), tls_(std::move(other.tls_)) {}
Socket::~Socket() { Close(); }

Socket& Socket::operator=(Socket&& other) {
  Close();
  fd_ = std::exchange(other.fd_, -1);
  tls_ = std::move(other.tls_);
  return *this;
}

void Socket::AcceptTls(std::shared_ptr<const TlsContext> context) {
  tls_ = TlsSession::Accept(std::move(context), fd_);
}

void Socket::ConnectTls(std::shared_ptr<const TlsContext> context, const std::string& host) {
  tls_ = TlsSession::Connect(std::move(context), fd_, host);
}

void Socket::Close() {
  tls_.reset();
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

Result<Socket> Socket::Bind(const Endpoint& endpoint) {
  ASSIGN_OR_RETURN(const SocketAddress address, Resolve(endpoint));
  Socket socket(::socket(address.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.open()) return Error(ErrorCode::kIo, "socket: {}", std::strerror(errno));
  SetOption(socket.fd_, SOL_SOCKET, SO_REUSEADDR);
  const auto* raw = reinterpret_cast<const sockaddr*>(address.bytes.data());
  if (bind(socket.fd_, raw, static_cast<socklen_t>(address.bytes.size())) != 0) {
    return Error(ErrorCode::kIo, "cannot listen on {}: {}", endpoint.ToString(),
                 std::strerror(errno));
  }
  return socket;
}

Result<Socket> Socket::Connect(const SocketAddress& address) {
  Socket socket(::socket(address.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.open()) return Error(ErrorCode::kIo, "socket: {}", std::strerror(errno));
  SetOption(socket.fd_, IPPROTO_TCP, TCP_NODELAY);
  const auto* raw = reinterpret_cast<const sockaddr*>(address.bytes.data());
  const int returned = connect(socket.fd_, raw, static_cast<socklen_t>(address.bytes.size()));
  if (returned != 0 && errno != EINPROGRESS) {
    return Error(ErrorCode::kUnavailable, "connect: {}", std::strerror(errno));
  }
  return socket;
}

Status Socket::Listen(int backlog) {
  if (listen(fd_, backlog) == 0) return OkStatus();
  return Error(ErrorCode::kIo, "listen: {}", std::strerror(errno));
}

IoResult Socket::Accept(Socket& accepted) {
  const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  // A connection reset before it was accepted is no failure of the listener.
  if (fd < 0 && errno == ECONNABORTED) return {IoResult::Kind::kWouldBlock};
  if (fd < 0) return FromCall(-1, IoResult::Kind::kError);
  accepted = Socket(fd);
  // Events are coalesced per turn already; Nagle would only delay the last one.
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY);
  return {IoResult::Kind::kOk, 1};
}

IoResult Socket::Read(std::span<char> buffer) {
  if (tls_ != nullptr) return tls_->Read(buffer);
  return FromCall(recv(fd_, buffer.data(), buffer.size(), 0), IoResult::Kind::kEnd);
}

IoResult Socket::Write(std::string_view bytes) {
  if (tls_ != nullptr) return tls_->Write(bytes);
  return FromCall(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), IoResult::Kind::kWouldBlock);
}

void Socket::ShutdownWrite() {
  if (tls_ != nullptr) tls_->ShutdownWrite();
  shutdown(fd_, SHUT_WR);
}

int Socket::PendingError() const {
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

uint16_t Socket::LocalPort() const {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string Socket::PeerAddress() const {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getpeername(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  const void* bytes =
      address.ss_family == AF_INET6
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr)
          : &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  char text[INET6_ADDRSTRLEN];
  return inet_ntop(address.ss_family, bytes, text, sizeof(text)) == nullptr ? "" : text;
}

}  // namespace hayate::http
