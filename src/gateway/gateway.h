#pragma once
// The gateway: many workers behind one address. It proxies HTTP, chooses the worker of each
// request, and keeps the fleet's health.
//
//   http threads   Handle → Lane → Exchange → Client → worker
//   gw-control     health, facts, loads, queue deadlines
//
// Create, then Start the server with Handle, then BeginDraining, Server::Shutdown, and destroy.

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "gateway/options.h"
#include "gateway/worker.h"
#include "http/server.h"
#include "obs/metrics.h"

namespace hayate::gateway {

class Gateway {
 public:
  // `threads` are the server's and outlive their use here. kIo: the access log cannot be opened.
  static Result<std::unique_ptr<Gateway>> Create(
      GatewayOptions options, obs::Registry& registry, const Clock& clock,
      std::span<const std::unique_ptr<http::IoThread>> threads, uint64_t seed);
  // After the server has shut down.
  ~Gateway();

  // The server's handler.
  void Handle(http::Request& request, http::ResponseWriter writer);
  // A handler of a second server, for metrics alone.
  void HandleMetrics(http::Request& request, http::ResponseWriter writer);

  // Any thread: the workers of one source (a flag, a file, a watch) are exactly these from now on.
  void SetWorkers(std::string_view source, const std::vector<WorkerSpec>& specs);
  void SetKeys(std::vector<ApiKey> keys);
  // Readiness turns false; requests are served still.
  void BeginDraining();
  int num_running() const;

  static http::ServerOptions::ErrorBody RenderError(int status, std::string_view reason);

 private:
  struct Impl;
  explicit Gateway(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hayate::gateway
