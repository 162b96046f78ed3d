#pragma once
// TLS as a layer of a Socket: what a server proves, what a client trusts. TLS 1.2 and 1.3 with
// OpenSSL's defaults. OpenSSL is seen by tls.cc and tls_session.cc alone.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"

struct ssl_ctx_st;

namespace hayate::http {

// Certificates and rules of one side. Immutable and shared by its connections.
class TlsContext {
 public:
  struct ServerOptions {
    std::string cert_file;  // PEM, leaf first
    std::string key_file;
    std::string client_ca_file;  // when set, clients must prove a certificate of it
  };
  struct ClientOptions {
    std::string ca_file;    // empty: the system's
    std::string cert_file;  // of this client, for servers that ask; empty: none
    std::string key_file;
    enum class Verify { kPeer, kNothing };
    Verify verify = Verify::kPeer;
  };
  // kInvalidArgument names the file that cannot be used.
  static Result<std::shared_ptr<const TlsContext>> ForServer(const ServerOptions& options);
  static Result<std::shared_ptr<const TlsContext>> ForClient(const ClientOptions& options);
  ~TlsContext();

  ssl_ctx_st* native() const { return native_; }
  bool verifies() const { return verifies_; }

 private:
  explicit TlsContext(ssl_ctx_st* native) : native_(native) {}
  ssl_ctx_st* native_;
  bool verifies_ = true;
};

// A server's context, made again when its files have changed: certificates are rotated under
// running servers. A bad new pair is logged and the old one kept. Any thread.
class TlsIdentity {
 public:
  static Result<std::shared_ptr<TlsIdentity>> Load(TlsContext::ServerOptions options);

  // The context for a new connection; looks at the files at most every kCheckSeconds.
  std::shared_ptr<const TlsContext> Current();
  // Looks now.
  Status Reload();

 private:
  static constexpr int64_t kCheckSeconds = 5;
  explicit TlsIdentity(TlsContext::ServerOptions options) : options_(std::move(options)) {}
  int64_t Stamp() const;  // changes with the files

  const TlsContext::ServerOptions options_;
  std::mutex mutex_;
  std::shared_ptr<const TlsContext> context_;  // guarded by mutex_
  int64_t stamp_ = 0;                          // guarded by mutex_
  int64_t checked_s_ = 0;                      // guarded by mutex_
};

}  // namespace hayate::http
