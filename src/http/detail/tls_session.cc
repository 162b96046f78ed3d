#include "http/detail/tls_session.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <cerrno>

#include "base/check.h"

namespace hayate::http {

TlsSession::TlsSession(std::shared_ptr<const TlsContext> context, int fd)
    : context_(std::move(context)), ssl_(SSL_new(context_->native())) {
  CHECK(ssl_ != nullptr) << "SSL_new";
  SSL_set_fd(ssl_, fd);
}

TlsSession::~TlsSession() { SSL_free(ssl_); }

std::unique_ptr<TlsSession> TlsSession::Accept(std::shared_ptr<const TlsContext> context, int fd) {
  std::unique_ptr<TlsSession> session(new TlsSession(std::move(context), fd));
  SSL_set_accept_state(session->ssl_);
  return session;
}

std::unique_ptr<TlsSession> TlsSession::Connect(std::shared_ptr<const TlsContext> context, int fd,
                                                const std::string& host) {
  const bool verifies = context->verifies();
  std::unique_ptr<TlsSession> session(new TlsSession(std::move(context), fd));
  in6_addr ignored{};
  const bool is_address = inet_pton(AF_INET, host.c_str(), &ignored) == 1 ||
                          inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
  if (!is_address) SSL_set_tlsext_host_name(session->ssl_, host.c_str());
  if (verifies) {
    X509_VERIFY_PARAM* param = SSL_get0_param(session->ssl_);
    if (is_address) {
      X509_VERIFY_PARAM_set1_ip_asc(param, host.c_str());
    } else {
      X509_VERIFY_PARAM_set1_host(param, host.c_str(), host.size());
    }
  }
  SSL_set_connect_state(session->ssl_);
  return session;
}

IoResult TlsSession::Outcome(int returned, size_t num_bytes) {
  if (returned == 1) return {IoResult::Kind::kOk, num_bytes};
  const int saved_errno = errno;
  const int error = SSL_get_error(ssl_, returned);
  ERR_clear_error();
  switch (error) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return {IoResult::Kind::kWouldBlock};
    case SSL_ERROR_ZERO_RETURN:
      return {IoResult::Kind::kEnd};
    case SSL_ERROR_SYSCALL:
      return {IoResult::Kind::kError, 0, saved_errno != 0 ? saved_errno : ECONNRESET};
    default:
      // A failed handshake, or an end without a close notice: a cut must not pass for an end.
      return {IoResult::Kind::kError, 0, EPROTO};
  }
}

IoResult TlsSession::Read(std::span<char> buffer) {
  errno = 0;
  size_t num_bytes = 0;
  const int returned = SSL_read_ex(ssl_, buffer.data(), buffer.size(), &num_bytes);
  return Outcome(returned, num_bytes);
}

IoResult TlsSession::Write(std::string_view bytes) {
  errno = 0;
  size_t num_bytes = 0;
  const int returned = SSL_write_ex(ssl_, bytes.data(), bytes.size(), &num_bytes);
  return Outcome(returned, num_bytes);
}

void TlsSession::ShutdownWrite() {
  SSL_shutdown(ssl_);
  ERR_clear_error();
}

}  // namespace hayate::http
