#pragma once
// A non-blocking TCP socket. The one place that makes socket calls; a TLS session would sit behind
// the same Read and Write.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "http/endpoint.h"

namespace hayate::http {

struct IoResult {
  enum class Kind { kOk, kWouldBlock, kEnd, kError };
  Kind kind;
  size_t num_bytes = 0;  // > 0 exactly when kOk
  int error = 0;         // errno when kError
};

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other);
  ~Socket() { Close(); }

  // Bound but not listening. Port 0 takes any free one.
  static Result<Socket> Bind(const Endpoint& endpoint);
  // Begins to connect; writable or failed is an event.
  static Result<Socket> Connect(const SocketAddress& address);

  Status Listen(int backlog);
  // kWouldBlock when none waits; kError carries EMFILE and the like.
  IoResult Accept(Socket& accepted);

  IoResult Read(std::span<char> buffer);
  IoResult Write(std::string_view bytes);
  // Tells the peer that no more comes; reading goes on.
  void ShutdownWrite();
  // The error of a connect that finished: 0 when it succeeded.
  int PendingError() const;
  void Close();

  uint16_t LocalPort() const;
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace hayate::http
