#pragma once
// TLS on one socket. Calls never block; the handshake happens inside the first of them.

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "http/detail/io_result.h"
#include "http/tls.h"

struct ssl_st;

namespace hayate::http {

class TlsSession {
 public:
  // `fd` outlives the session. `host` is what the client verifies the certificate against.
  static std::unique_ptr<TlsSession> Accept(std::shared_ptr<const TlsContext> context, int fd);
  static std::unique_ptr<TlsSession> Connect(std::shared_ptr<const TlsContext> context, int fd,
                                             const std::string& host);
  ~TlsSession();

  // kWouldBlock may mean that the socket must become readable for a write, or writable for a read:
  // try both again at any event.
  IoResult Read(std::span<char> buffer);
  IoResult Write(std::string_view bytes);
  void ShutdownWrite();

 private:
  TlsSession(std::shared_ptr<const TlsContext> context, int fd);
  IoResult Outcome(int returned, size_t num_bytes);

  std::shared_ptr<const TlsContext> context_;
  ssl_st* ssl_;
};

}  // namespace hayate::http
