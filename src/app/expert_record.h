#pragma once
// What operators see of a mixture's experts while it serves: a record of how often each was chosen
// (SGLang's start, stop and dump of the expert distribution), and metrics of how evenly that loads
// the ranks.

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "exec/local_executor.h"
#include "obs/metrics.h"

namespace hayate::app {

class ExpertRecord {
 public:
  // The executor and the registry outlive it.
  ExpertRecord(const exec::LocalExecutor& executor, obs::Registry& registry,
               const std::string& model_name);

  // Any thread. A record runs from Start to Stop or on; a further Start begins it anew.
  // kUnsupported where no experts are counted.
  Status Start();
  // kInvalidArgument where no record runs.
  Status Stop();
  // The record so far as JSON that --init-expert-location reads; a running one begins anew.
  // kInvalidArgument without a record.
  Result<std::string> Dump();

  // Now and then, on one thread: over the rows since the last time.
  void UpdateMetrics();

 private:
  Status CheckCounted() const;

  const exec::LocalExecutor& executor_;
  obs::Gauge& balance_;
  obs::Counter& rebalances_;
  obs::Counter& moved_;
  std::vector<int64_t> seen_;  // by UpdateMetrics

  std::mutex mutex_;                          // of what follows
  std::optional<std::vector<int64_t>> from_;  // counts where the record begins
  std::optional<std::vector<int64_t>> to_;    // and where it ended, once it has
};

}  // namespace hayate::app
