#include "bench/proxy_load.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "http/client.h"
#include "http/event_loop.h"

namespace hayate::bench {
namespace {

uint64_t CountEvents(std::string_view bytes) {
  uint64_t count = 0;
  for (size_t at = bytes.find("\n\n"); at != std::string_view::npos;
       at = bytes.find("\n\n", at + 2)) {
    ++count;
  }
  return count;
}

// One slot of the concurrency: it sends, waits for the answer, sends again.
class Run {
 public:
  Run(const ProxyLoadOptions& options, http::EventLoop& loop, const http::SocketAddress& address)
      : options_(options),
        loop_(loop),
        client_(loop, options.endpoint, address,
                {.head_timeout = std::chrono::seconds(60), .max_idle_connections = 65536}),
        pacer_(loop, [this] { Pace(); }),
        slots_(options.concurrency) {
    loop_.RefreshNow();
    begin_ns_ = clock_.NowNs();
    measure_ns_ = begin_ns_ + std::chrono::nanoseconds(options.warmup).count();
    end_ns_ = measure_ns_ + std::chrono::nanoseconds(options.duration).count();
  }

  ProxyLoadResult Finish() {
    for (size_t i = 0; i < slots_.size(); ++i) free_.push_back(i);
    if (options_.rate > 0.0) {
      Pace();
    } else {
      while (!free_.empty()) Send(begin_ns_);
    }
    loop_.RunUntil(done_);
    result_.seconds = static_cast<double>(last_ns_ - measure_ns_) * 1e-9;
    std::sort(result_.latency_us.begin(), result_.latency_us.end());
    std::sort(result_.first_byte_us.begin(), result_.first_byte_us.end());
    return std::move(result_);
  }

 private:
  struct Slot {
    int64_t due_ns = 0;
    int64_t first_ns = 0;
    int status = 0;
    uint64_t events = 0;
    uint64_t bytes = 0;
  };

  // Requests that are due; when no slot is free they wait, and their latency grows, as a client's
  // would.
  void Pace() {
    const int64_t now_ns = clock_.NowNs();
    const double gap_ns = 1e9 / options_.rate;
    while (!free_.empty()) {
      const auto due_ns = begin_ns_ + static_cast<int64_t>(static_cast<double>(paced_) * gap_ns);
      if (due_ns > now_ns) break;
      ++paced_;
      Send(due_ns);
    }
    if (now_ns >= end_ns_) return;
    const auto next_ns = begin_ns_ + static_cast<int64_t>(static_cast<double>(paced_) * gap_ns);
    if (!free_.empty()) pacer_.Set(std::max(next_ns, loop_.now_ns() + 1));
  }

  void Send(int64_t due_ns) {
    if (clock_.NowNs() >= end_ns_) return Stop();
    const size_t index = free_.back();
    free_.pop_back();
    slots_[index] = {.due_ns = due_ns};
    ++in_flight_;
    http::ClientRequest request{.method = "POST", .target = options_.path};
    request.headers.emplace_back("Content-Type", "application/json");
    const std::string& body = options_.prompts.empty()
                                  ? options_.body
                                  : options_.prompts[next_prompt_++ % options_.prompts.size()];
    request.shared_body = {nullptr, {std::string_view(body)}};
    Slot* slot = &slots_[index];
    client_.Fetch(std::move(request),
                  {.on_head = [slot](int status, http::HeaderView) { slot->status = status; },
                   .on_data =
                       [this, slot](std::string_view bytes) {
                         if (slot->first_ns == 0) slot->first_ns = clock_.NowNs();
                         slot->bytes += bytes.size();
                         slot->events += CountEvents(bytes);
                       },
                   .on_done = [this, index](const Status& status) { Done(index, status); }});
  }

  void Done(size_t index, const Status& status) {
    const Slot& slot = slots_[index];
    const int64_t now_ns = clock_.NowNs();
    --in_flight_;
    if (slot.due_ns >= measure_ns_ && now_ns <= end_ns_) {
      last_ns_ = now_ns;
      if (status.ok() && slot.status == 200) {
        ++result_.requests;
        result_.latency_us.push_back(static_cast<double>(now_ns - slot.due_ns) * 1e-3);
        result_.first_byte_us.push_back(static_cast<double>(slot.first_ns - slot.due_ns) * 1e-3);
      } else {
        ++result_.failed;
        if (result_.first_error.empty()) {
          result_.first_error =
              status.ok() ? fmt::format("status {}", slot.status) : status.ToString();
        }
      }
      result_.events += slot.events;
      result_.bytes += slot.bytes;
    }
    free_.push_back(index);
    if (options_.rate > 0.0) {
      Pace();
    } else {
      Send(now_ns);
    }
    if (now_ns >= end_ns_) Stop();
  }

  void Stop() {
    if (in_flight_ == 0) done_ = true;
  }

  const ProxyLoadOptions& options_;
  http::EventLoop& loop_;
  SteadyClock clock_;
  http::Client client_;
  http::Timer pacer_;
  std::vector<Slot> slots_;
  std::vector<size_t> free_;
  int64_t begin_ns_ = 0;
  int64_t measure_ns_ = 0;
  int64_t end_ns_ = 0;
  int64_t last_ns_ = 0;
  uint64_t paced_ = 0;
  size_t next_prompt_ = 0;
  int in_flight_ = 0;
  bool done_ = false;
  ProxyLoadResult result_;
};

}  // namespace

double Quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0.0;
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

Result<ProxyLoadResult> RunProxyLoad(const ProxyLoadOptions& options) {
  if (options.concurrency < 1) {
    return Error(ErrorCode::kInvalidArgument, "concurrency must be at least 1");
  }
  ASSIGN_OR_RETURN(const http::SocketAddress address, http::Resolve(options.endpoint));
  ASSIGN_OR_RETURN(const auto loop, http::EventLoop::Create(1));
  Run run(options, *loop, address);
  return run.Finish();
}

}  // namespace hayate::bench
