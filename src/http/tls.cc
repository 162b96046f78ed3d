#include "http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <csignal>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

namespace hayate::http {
namespace {

std::string LastError() {
  char text[256];
  ERR_error_string_n(ERR_get_error(), text, sizeof(text));
  ERR_clear_error();
  return text;
}

Status UsePair(ssl_ctx_st* native, const std::string& cert, const std::string& key) {
  if (SSL_CTX_use_certificate_chain_file(native, cert.c_str()) != 1) {
    return Error(ErrorCode::kInvalidArgument, "TLS certificate {}: {}", cert, LastError());
  }
  if (SSL_CTX_use_PrivateKey_file(native, key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(native) != 1) {
    return Error(ErrorCode::kInvalidArgument, "TLS key {}: {}", key, LastError());
  }
  return OkStatus();
}

ssl_ctx_st* NewContext(const SSL_METHOD* method) {
  // OpenSSL writes with write(): a peer that went away must be an error, not a signal.
  std::signal(SIGPIPE, SIG_IGN);
  ssl_ctx_st* native = SSL_CTX_new(method);
  CHECK(native != nullptr) << LastError();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_mode(native, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                               SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  return native;
}

}  // namespace

TlsContext::~TlsContext() { SSL_CTX_free(native_); }

Result<std::shared_ptr<const TlsContext>> TlsContext::ForServer(const ServerOptions& options) {
  std::shared_ptr<TlsContext> context(new TlsContext(NewContext(TLS_server_method())));
  RETURN_IF_ERROR(UsePair(context->native_, options.cert_file, options.key_file));
  if (!options.client_ca_file.empty()) {
    const char* file = options.client_ca_file.c_str();
    if (SSL_CTX_load_verify_locations(context->native_, file, nullptr) != 1) {
      return Error(ErrorCode::kInvalidArgument, "TLS client CA {}: {}", file, LastError());
    }
    SSL_CTX_set_verify(context->native_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       nullptr);
  }
  return std::shared_ptr<const TlsContext>(std::move(context));
}

Result<std::shared_ptr<const TlsContext>> TlsContext::ForClient(const ClientOptions& options) {
  std::shared_ptr<TlsContext> context(new TlsContext(NewContext(TLS_client_method())));
  if (!options.cert_file.empty()) {
    RETURN_IF_ERROR(UsePair(context->native_, options.cert_file, options.key_file));
  }
  if (options.verify == ClientOptions::Verify::kNothing) {
    context->verifies_ = false;
    return std::shared_ptr<const TlsContext>(std::move(context));
  }
  SSL_CTX_set_verify(context->native_, SSL_VERIFY_PEER, nullptr);
  const char* file = options.ca_file.c_str();
  const int loaded = options.ca_file.empty()
                         ? SSL_CTX_set_default_verify_paths(context->native_)
                         : SSL_CTX_load_verify_locations(context->native_, file, nullptr);
  if (loaded != 1) return Error(ErrorCode::kInvalidArgument, "TLS CA {}: {}", file, LastError());
  return std::shared_ptr<const TlsContext>(std::move(context));
}

Result<std::shared_ptr<TlsIdentity>> TlsIdentity::Load(TlsContext::ServerOptions options) {
  std::shared_ptr<TlsIdentity> identity(new TlsIdentity(std::move(options)));
  RETURN_IF_ERROR(identity->Reload());
  return identity;
}

int64_t TlsIdentity::Stamp() const {
  uint64_t stamp = 0;
  for (const std::string& path : {options_.cert_file, options_.key_file, options_.client_ca_file}) {
    struct stat file {};
    if (path.empty() || stat(path.c_str(), &file) != 0) continue;
    stamp = stamp * 31 + static_cast<uint64_t>(file.st_mtim.tv_sec) * 1'000'000'007 +
            static_cast<uint64_t>(file.st_mtim.tv_nsec) + file.st_ino * 17;
  }
  return static_cast<int64_t>(stamp);
}

Status TlsIdentity::Reload() {
  std::lock_guard lock(mutex_);
  const int64_t stamp = Stamp();
  ASSIGN_OR_RETURN(context_, TlsContext::ForServer(options_));
  stamp_ = stamp;
  checked_s_ = UnixSeconds();
  return OkStatus();
}

std::shared_ptr<const TlsContext> TlsIdentity::Current() {
  std::lock_guard lock(mutex_);
  const int64_t now_s = UnixSeconds();
  if (now_s < checked_s_ + kCheckSeconds) return context_;
  checked_s_ = now_s;
  const int64_t stamp = Stamp();
  if (stamp == stamp_) return context_;
  stamp_ = stamp;
  auto fresh = TlsContext::ForServer(options_);
  if (fresh.ok()) {
    context_ = std::move(fresh).value();
    LOG_INFO("TLS: a new certificate from {}", options_.cert_file);
  } else {
    LOG_WARN("{}; the old certificate stays", fresh.status().message());
  }
  return context_;
}

}  // namespace hayate::http
