#pragma once
// Where workers come from when nobody names them: a file, a DNS name, or Kubernetes. Each source
// runs on a thread of its own, which blocks as it likes, and tells the whole set whenever it
// changes.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/thread.h"
#include "gateway/kube_store.h"
#include "gateway/worker.h"

namespace hayate::gateway {

// `source` tells the sets of several sources apart.
using WorkersChanged =
    std::function<void(std::string_view source, const std::vector<WorkerSpec>& workers)>;

// Sleeps that end at once when the owner stops.
class StopFlag {
 public:
  // False when stopped.
  bool SleepFor(std::chrono::milliseconds time);
  void Stop();
  bool stopped();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;  // guarded by mutex_
};

// The file's form: a JSON object {"workers": [{"url", "worker_type", …}]} as POST /workers takes
// them, or one URL a line. kInvalidArgument names the entry.
Result<std::vector<WorkerSpec>> ParseWorkerFile(std::string_view text);

struct DiscoveryOptions {
  std::string worker_file;       // looked at once a second
  std::vector<std::string> dns;  // "host:port": every address of the host is a worker
  std::chrono::milliseconds dns_interval{10'000};
  std::string worker_api_key;  // of the workers found
  KubeOptions kube;
};

class Discovery {
 public:
  Discovery(DiscoveryOptions options, WorkersChanged changed);
  // Ends the threads; a watch ends within its read timeout.
  ~Discovery();

 private:
  void WatchFile();
  void WatchDns();
  void WatchKube(KubeSelector selector);

  const DiscoveryOptions options_;
  const WorkersChanged changed_;
  StopFlag stop_;
  std::vector<NamedThread> threads_;
};

}  // namespace hayate::gateway
