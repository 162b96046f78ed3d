#pragma once
// Bytes on their way from one socket to another without leaving the kernel: splice(2) moves the
// pages of one into the pipe and those of the pipe into the other. Spares a large body two copies.

#include <cstddef>
#include <memory>

#include "http/detail/io_result.h"

namespace hayate::http {

class Socket;

// Owner: one loop thread.
class Pipe {
 public:
  // What it holds at most: as for reading, a large body costs by the call.
  static constexpr size_t kMaxBytes = 1 << 20;

  // Null when the kernel gives none. Ignores SIGPIPE: splice(2) has no flag that does.
  static std::shared_ptr<Pipe> Create();
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  // Moves up to `max_bytes` from a plain socket. Only into an empty pipe: kWouldBlock then says
  // that the socket is empty. kError also when the kernel cannot do it: nothing has moved.
  IoResult FillFrom(Socket& socket, size_t max_bytes);
  // Moves what the socket takes. Only while pending().
  IoResult DrainTo(Socket& socket);
  size_t pending() const { return pending_; }

 private:
  Pipe(int read_fd, int write_fd) : read_fd_(read_fd), write_fd_(write_fd) {}
  const int read_fd_;
  const int write_fd_;
  size_t pending_ = 0;
};

}  // namespace hayate::http
