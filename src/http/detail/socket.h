#pragma once
// A non-blocking TCP socket, with TLS on top when asked. The one place that makes socket calls.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "http/detail/io_result.h"
#include "http/endpoint.h"

namespace hayate::http {

class TlsContext;
class TlsSession;

class Socket {
 public:
  Socket();
  explicit Socket(int fd);
  Socket(Socket&& other);
  Socket& operator=(Socket&& other);
  ~Socket();

  // Bound but not listening. Port 0 takes any free one.
  static Result<Socket> Bind(const Endpoint& endpoint);
  // Begins to connect; writable or failed is an event.
  static Result<Socket> Connect(const SocketAddress& address);

  Status Listen(int backlog);
  // kWouldBlock when none waits; kError carries EMFILE and the like.
  IoResult Accept(Socket& accepted);

  // TLS from here on; the handshake runs inside Read and Write. A call that would block is then
  // worth another try at any event, whichever way.
  void AcceptTls(std::shared_ptr<const TlsContext> context);
  void ConnectTls(std::shared_ptr<const TlsContext> context, const std::string& host);
  bool has_tls() const { return tls_ != nullptr; }

  // Without TLS a read that does not fill the buffer has emptied the socket.
  IoResult Read(std::span<char> buffer);
  IoResult Write(std::string_view bytes);
  // Tells the peer that no more comes; reading goes on.
  void ShutdownWrite();
  // The error of a connect that finished: 0 when it succeeded.
  int PendingError() const;
  void Close();

  uint16_t LocalPort() const;
  // "127.0.0.1", "::1"; empty when the peer is gone.
  std::string PeerAddress() const;
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
  std::unique_ptr<TlsSession> tls_;
};

}  // namespace hayate::http
