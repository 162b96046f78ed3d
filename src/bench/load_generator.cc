#include "bench/load_generator.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "http/client.h"
#include "http/sse.h"

namespace hayate::bench {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxEventBytes = 16 << 20;
constexpr size_t kMaxErrorBytes = 300;  // kept of an error's body
constexpr milliseconds kTick{200};      // between looks at timeouts, and progress reports

double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// One request under way. Owner: the client thread.
struct Flight {
  explicit Flight(size_t planned) : index(planned), parser(kMaxEventBytes) {}

  size_t index;  // in the workload
  http::Client::RequestId id = 0;
  int64_t sent_ns = 0;
  int64_t last_text_ns = 0;  // 0: none yet
  int32_t http_status = 0;
  int32_t last_count = 0;  // tokens that the events have reported
  int32_t num_text_events = 0;
  bool counted = false;  // the server reports token counts
  bool finished = false;
  std::string error;
  std::string error_body;
  http::SseParser parser;
};

// What both threads see.
class Progress {
 public:
  void Report(const LoadProgressReport& report, bool all_done) {
    {
      std::lock_guard lock(mutex_);
      report_ = report;
      all_done_ = all_done;
    }
    if (all_done) changed_.notify_one();
  }
  // Until the time or the end; whether it is the end.
  bool WaitUntil(std::chrono::steady_clock::time_point time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, time, [this] { return all_done_; });
  }
  LoadProgressReport report() const {
    std::lock_guard lock(mutex_);
    return report_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  LoadProgressReport report_;  // guarded by mutex_, as the next
  bool all_done_ = false;
};

// Owner: the client thread, construction and destruction included.
class LoadRun {
 public:
  LoadRun(const LoadOptions& options, std::span<const PlannedRequest> workload,
          http::EventLoop& loop, const http::SocketAddress& address, Progress& progress)
      : options_(options),
        workload_(workload),
        progress_(progress),
        reader_(options.dialect.dialect),
        client_(loop, options.endpoint, address,
                {.head_timeout = options.request_timeout, .read_timeout = options.request_timeout}),
        max_in_flight_(options.max_concurrency > 0
                           ? std::min(options.max_concurrency, kMaxConcurrency)
                           : kMaxConcurrency) {
    result_.records.resize(workload.size());
    // Before the first arrival is due, so that no delay of its hand-over shortens the run.
    start_ns_ = clock_.NowNs();
  }

  // Requests [begin, end) of the workload have arrived.
  void Arrive(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) waiting_.push_back(i);
    SendWaiting();
  }

  void CancelOverdue() {
    const int64_t oldest_ns =
        clock_.NowNs() - std::chrono::nanoseconds(options_.request_timeout).count();
    std::vector<Flight*> overdue;
    for (auto& [index, flight] : flights_) {
      if (flight->sent_ns < oldest_ns) overdue.push_back(flight.get());
    }
    for (Flight* flight : overdue) {
      client_.Cancel(flight->id);
      flight->error =
          fmt::format("no complete answer within {} ms", options_.request_timeout.count());
      Finish(*flight);
    }
    SendWaiting();
  }

  LoadResult TakeResult() { return std::move(result_); }

 private:
  void SendWaiting() {
    while (!waiting_.empty() && num_in_flight() < max_in_flight_) {
      Send(waiting_.front());
      waiting_.pop_front();
    }
  }

  void Send(size_t index) {
    auto owned = std::make_unique<Flight>(index);
    Flight* flight = owned.get();
    flights_.emplace(index, std::move(owned));
    result_.max_in_flight = std::max(result_.max_in_flight, num_in_flight());
    http::ClientRequest request = MakeStreamRequest(options_.dialect, workload_[index]);
    flight->sent_ns = clock_.NowNs();
    flight->id = client_.Fetch(
        std::move(request),
        {.on_head = [flight](int status, http::HeaderView) { flight->http_status = status; },
         .on_data = [this, flight](std::string_view bytes) { Receive(*flight, bytes); },
         .on_done =
             [this, flight](const Status& status) {
               if (!status.ok() && flight->error.empty()) flight->error = status.message();
               Finish(*flight);
               SendWaiting();
             }});
  }

  void Receive(Flight& flight, std::string_view bytes) {
    if (flight.http_status != 200) {
      const size_t room = kMaxErrorBytes - flight.error_body.size();
      flight.error_body += bytes.substr(0, room);
      return;
    }
    const int64_t now_ns = clock_.NowNs();
    flight.parser.Feed(bytes);
    http::SseEvent event;
    for (;;) {
      const auto outcome = flight.parser.Next(event);
      if (outcome == http::SseParser::Outcome::kNeedMore) return;
      if (outcome == http::SseParser::Outcome::kTooLarge) {
        flight.error = "an event is too large";
        return;
      }
      auto read = reader_.Read(event.data);
      if (!read.ok()) {
        flight.error = read.status().message();
        return;
      }
      Take(flight, *read, now_ns);
    }
  }

  void Take(Flight& flight, const StreamEvent& event, int64_t now_ns) {
    RequestRecord& record = result_.records[flight.index];
    if (!event.error.empty()) flight.error = event.error;
    if (event.finished) flight.finished = true;
    if (event.prompt_tokens) record.input_tokens = *event.prompt_tokens;
    if (event.cached_tokens) record.cached_tokens = *event.cached_tokens;
    // Where events count their tokens, a gap is shared by the tokens that end it.
    int32_t num_new = event.has_text ? 1 : 0;
    if (event.completion_tokens) {
      flight.counted = true;
      record.output_tokens = *event.completion_tokens;
      if (options_.dialect.dialect == StreamDialect::kGenerate) {
        num_new = *event.completion_tokens - flight.last_count;
        flight.last_count = *event.completion_tokens;
      }
    }
    if (num_new <= 0) return;
    ++flight.num_text_events;
    if (flight.last_text_ns == 0) {
      record.ttft_s = Seconds(now_ns - flight.sent_ns);
    } else {
      const double gap_s = Seconds(now_ns - flight.last_text_ns) / num_new;
      record.itl_s.insert(record.itl_s.end(), static_cast<size_t>(num_new), gap_s);
    }
    flight.last_text_ns = now_ns;
  }

  void Finish(Flight& flight) {
    const int64_t now_ns = clock_.NowNs();
    RequestRecord& record = result_.records[flight.index];
    record.wanted_output_tokens = workload_[flight.index].output_tokens;
    record.e2e_s = Seconds(now_ns - flight.sent_ns);
    // A token may have no text of its own: the end is the first that is seen of such an answer.
    if (flight.last_text_ns == 0) record.ttft_s = record.e2e_s;
    if (!flight.counted) {
      record.output_tokens = flight.num_text_events;
      record.input_tokens = static_cast<int32_t>(workload_[flight.index].prompt_ids.size());
    }
    if (flight.error.empty() && flight.http_status != 200) {
      flight.error = fmt::format("HTTP {}: {}", flight.http_status, flight.error_body);
    }
    if (flight.error.empty() && !flight.finished)
      flight.error = "the stream ended without a finish";
    if (flight.error.empty() && record.output_tokens == 0)
      flight.error = "the answer has no tokens";
    record.error = flight.error.substr(0, kMaxErrorBytes);
    num_failed_ += record.error.empty() ? 0 : 1;
    ++num_done_;
    result_.duration_s = Seconds(now_ns - start_ns_);
    flights_.erase(flight.index);
    progress_.Report({num_done_, num_failed_, num_in_flight()},
                     num_done_ == static_cast<int32_t>(workload_.size()));
  }

  int32_t num_in_flight() const { return static_cast<int32_t>(flights_.size()); }

  const LoadOptions& options_;
  std::span<const PlannedRequest> workload_;
  Progress& progress_;
  SteadyClock clock_;
  StreamEventReader reader_;
  std::unordered_map<size_t, std::unique_ptr<Flight>> flights_;  // by index
  std::deque<size_t> waiting_;                                   // arrived, not sent
  http::Client client_;
  const int32_t max_in_flight_;
  LoadResult result_;
  int64_t start_ns_ = 0;
  int32_t num_done_ = 0;
  int32_t num_failed_ = 0;
};

// Runs `body` on the thread and waits for it.
void RunOn(http::IoThread& thread, const std::function<void()>& body) {
  std::mutex mutex;
  std::condition_variable done_changed;
  bool done = false;
  const bool posted = thread.TryPost([&] {
    body();
    std::lock_guard lock(mutex);
    done = true;
    done_changed.notify_one();
  });
  CHECK(posted) << "the load thread takes no tasks";
  std::unique_lock lock(mutex);
  done_changed.wait(lock, [&] { return done; });
}

// Hands requests over as they arrive, and looks after the timeouts, until all have ended.
void Pace(http::IoThread& thread, LoadRun& run, Progress& progress, const LoadOptions& options,
          std::span<const double> arrival_s) {
  const auto start = std::chrono::steady_clock::now();
  const auto since_start = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  auto next_tick = start + kTick;
  size_t next = 0;
  for (;;) {
    const size_t first = next;
    while (next < arrival_s.size() && arrival_s[next] <= since_start()) ++next;
    if (next > first) {
      RunOn(thread, [&run, first, next] { run.Arrive(first, next); });
    }
    auto wake = next_tick;
    if (next < arrival_s.size()) {
      wake = std::min(wake, start + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::duration<double>(arrival_s[next])));
    }
    if (progress.WaitUntil(wake)) return;
    if (std::chrono::steady_clock::now() < next_tick) continue;
    next_tick += kTick;
    RunOn(thread, [&run] { run.CancelOverdue(); });
    if (options.progress) options.progress(progress.report());
  }
}

}  // namespace

Result<LoadResult> RunLoad(const LoadOptions& options, std::span<const PlannedRequest> workload,
                           std::span<const double> arrival_s) {
  CHECK_EQ(workload.size(), arrival_s.size());
  if (workload.empty()) return LoadResult{};
  ASSIGN_OR_RETURN(const http::SocketAddress address, http::Resolve(options.endpoint));
  ASSIGN_OR_RETURN(const auto thread, http::IoThread::Start({.name = "load"}));
  Progress progress;
  std::unique_ptr<LoadRun> run;
  RunOn(*thread, [&] {
    run = std::make_unique<LoadRun>(options, workload, thread->loop(), address, progress);
  });
  Pace(*thread, *run, progress, options, arrival_s);
  LoadResult result;
  RunOn(*thread, [&] {
    result = run->TakeResult();
    run.reset();
  });
  return result;
}

}  // namespace hayate::bench
