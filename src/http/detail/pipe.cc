#include "http/detail/pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/error.h"
#include "http/detail/socket.h"

namespace hayate::http {
namespace {

IoResult FromSplice(ssize_t moved) {
  if (moved > 0) return {IoResult::Kind::kOk, static_cast<size_t>(moved)};
  if (moved == 0) return {IoResult::Kind::kEnd};
  if (errno == EAGAIN) return {IoResult::Kind::kWouldBlock};
  return {IoResult::Kind::kError, 0, errno};
}

}  // namespace

std::shared_ptr<Pipe> Pipe::Create() {
  int fds[2];
  if (pipe2(fds, O_NONBLOCK | O_CLOEXEC) != 0) return nullptr;
  std::signal(SIGPIPE, SIG_IGN);
  // A user over its share of pipe memory keeps the smaller default, which works as well.
  (void)fcntl(fds[1], F_SETPIPE_SZ, static_cast<int>(kMaxBytes));
  return std::shared_ptr<Pipe>(new Pipe(fds[0], fds[1]));
}

Pipe::~Pipe() {
  close(read_fd_);
  close(write_fd_);
}

IoResult Pipe::FillFrom(Socket& socket, size_t max_bytes) {
  CHECK(pending_ == 0 && !socket.has_tls()) << "a pipe is filled from a plain socket when empty";
  const size_t limit = std::min(max_bytes, kMaxBytes);
  const IoResult result = FromSplice(
      splice(socket.fd(), nullptr, write_fd_, nullptr, limit, SPLICE_F_MOVE | SPLICE_F_NONBLOCK));
  pending_ += result.num_bytes;
  return result;
}

IoResult Pipe::DrainTo(Socket& socket) {
  CHECK(pending_ > 0 && !socket.has_tls()) << "an empty pipe has nothing to send";
  const IoResult result = FromSplice(
      splice(read_fd_, nullptr, socket.fd(), nullptr, pending_, SPLICE_F_MOVE | SPLICE_F_NONBLOCK));
  pending_ -= result.num_bytes;
  return result;
}

}  // namespace hayate::http
