#include "grammar/grammar_compiler.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "base/error.h"

namespace hayate::grammar {
namespace {

// On a CPU the engine's ranks are threads too, and answers go first: beside one of them a
// compilation has a quarter of a core, one that takes long a seventieth.
constexpr int kNice = 5;
constexpr int kNiceOfSubstituted = 19;

// Best effort.
void SetNice(pid_t thread, int nice) { setpriority(PRIO_PROCESS, static_cast<id_t>(thread), nice); }

}  // namespace

GrammarCompiler::GrammarCompiler(std::shared_ptr<const Vocabulary> vocabulary,
                                 const Options& options, const Clock& clock)
    : vocabulary_(std::move(vocabulary)), options_(options), clock_(clock) {
  {
    const std::lock_guard lock(mutex_);
    for (int i = 0; i < options_.num_threads; ++i) AddWorker();
  }
  watchdog_ = NamedThread("grammar-limit", [this] { WatchdogMain(); });
}

GrammarCompiler::~GrammarCompiler() {
  std::vector<Done> left;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    queue_.clear();
    for (auto& [key, job] : jobs_) {
      for (Waiter& waiter : job.waiters) left.push_back(std::move(waiter.done));
      job.waiters.clear();
    }
  }
  work_arrived_.notify_all();
  deadline_changed_.notify_all();
  for (const Done& done : left) done(Status(ErrorCode::kUnavailable, "the server is stopping"));
  watchdog_.Join();  // takes no workers away and adds none any more
  for (Worker& worker : workers_) worker.thread.Join();
}

void GrammarCompiler::AddWorker() {
  Worker& worker = workers_.emplace_back();
  worker.thread = NamedThread("grammar", [this, &worker] { WorkerMain(worker); });
}

std::string GrammarCompiler::KeyOf(const GrammarSource& source) {
  return std::to_string(static_cast<int>(source.kind)) + source.field + '\n' + source.text;
}

void GrammarCompiler::Compile(const GrammarSource& source, Done done) {
  std::string key = KeyOf(source);
  std::unique_lock lock(mutex_);
  if (const auto it = by_key_.find(key); it != by_key_.end()) {
    entries_.splice(entries_.end(), entries_, it->second);
    ++stats_.hits;
    Result<Compiled> result = it->second->result;
    lock.unlock();
    return done(std::move(result));
  }
  auto job = jobs_.find(key);
  if (job == jobs_.end()) {
    if (stopping_ || queue_.size() >= options_.max_waiting) {
      lock.unlock();
      return done(Status(ErrorCode::kResourceExhausted,
                         "too many grammars wait to be compiled; try again later"));
    }
    job = jobs_.emplace(key, Job{source, {}}).first;
    queue_.push_back(std::move(key));
    work_arrived_.notify_one();
  }
  job->second.waiters.push_back(
      {std::move(done), source.field, clock_.NowNs() + options_.time_limit_ns});
  deadline_changed_.notify_one();
}

Result<GrammarCompiler::Compiled> GrammarCompiler::CompileNow(const GrammarSource& source) {
  std::promise<Result<Compiled>> promise;
  auto future = promise.get_future();
  Compile(source, [&promise](Result<Compiled> result) { promise.set_value(std::move(result)); });
  return future.get();
}

void GrammarCompiler::WorkerMain(Worker& self) {
  SetNice(gettid(), kNice);
  std::unique_lock lock(mutex_);
  self.id = gettid();
  while (!self.substituted) {
    work_arrived_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    std::string key = std::move(queue_.front());
    queue_.pop_front();
    const GrammarSource source = jobs_.at(key).source;
    self.busy_since_ns = clock_.NowNs();
    deadline_changed_.notify_one();
    lock.unlock();

    Result<Compiled> result = CompiledGrammar::Compile(vocabulary_, source);
    if (result.ok() && (*result)->memory_bytes() > options_.max_grammar_bytes) {
      result = InvalidField(source.field, "compiles to {} MiB, at most {} MiB are allowed",
                            (*result)->memory_bytes() >> 20, options_.max_grammar_bytes >> 20);
    }

    lock.lock();
    self.busy_since_ns = kIdle;
    std::vector<Waiter> waiters = std::move(jobs_.at(key).waiters);
    jobs_.erase(key);
    ++(result.ok() ? stats_.compiled : stats_.failed);
    Store(std::move(key), result);
    lock.unlock();
    for (const Waiter& waiter : waiters) waiter.done(result);
    lock.lock();
  }
  self.done = true;
  deadline_changed_.notify_one();
}

GrammarCompiler::Worker* GrammarCompiler::NextToSubstitute() {
  if (queue_.empty() || std::ssize(workers_) >= options_.max_threads) return nullptr;
  Worker* longest = nullptr;
  for (Worker& worker : workers_) {
    if (worker.substituted) continue;
    if (worker.busy_since_ns == kIdle) return nullptr;  // about to take it
    if (longest == nullptr || worker.busy_since_ns < longest->busy_since_ns) longest = &worker;
  }
  return longest;
}

int64_t GrammarCompiler::NextAlarm() {
  int64_t earliest = std::numeric_limits<int64_t>::max();
  for (const auto& [key, job] : jobs_) {
    for (const Waiter& waiter : job.waiters) earliest = std::min(earliest, waiter.deadline_ns);
  }
  const Worker* worker = NextToSubstitute();
  if (worker == nullptr) return earliest;
  return std::min(earliest, worker->busy_since_ns + options_.patience_ns);
}

std::list<GrammarCompiler::Worker> GrammarCompiler::TakeDoneWorkers() {
  std::list<Worker> done;
  for (auto worker = workers_.begin(); worker != workers_.end();) {
    const auto next = std::next(worker);
    if (worker->done) done.splice(done.end(), workers_, worker);
    worker = next;
  }
  return done;
}

void GrammarCompiler::WatchdogMain() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (std::list<Worker> done = TakeDoneWorkers(); !done.empty()) {
      lock.unlock();
      done.clear();  // they have left already, or are about to
      lock.lock();
      continue;
    }
    const int64_t earliest = NextAlarm();
    if (earliest == std::numeric_limits<int64_t>::max()) {
      deadline_changed_.wait(lock);
      continue;
    }
    const int64_t left_ns = earliest - clock_.NowNs();
    if (left_ns > 0) {
      deadline_changed_.wait_for(lock, std::chrono::nanoseconds(left_ns));
      continue;
    }
    Worker* worker = NextToSubstitute();
    if (worker != nullptr && worker->busy_since_ns + options_.patience_ns <= clock_.NowNs()) {
      worker->substituted = true;
      SetNice(worker->id, kNiceOfSubstituted);
      AddWorker();
      continue;
    }
    const std::vector<Waiter> expired = TakeExpired(clock_.NowNs());
    lock.unlock();
    for (const Waiter& waiter : expired) {
      waiter.done(InvalidField(waiter.field, "takes longer than {:g} s to compile; make it simpler",
                               static_cast<double>(options_.time_limit_ns) * 1e-9));
    }
    lock.lock();
  }
}

std::vector<GrammarCompiler::Waiter> GrammarCompiler::TakeExpired(int64_t now_ns) {
  std::vector<Waiter> expired;
  for (auto& [key, job] : jobs_) {
    std::erase_if(job.waiters, [&](Waiter& waiter) {
      if (waiter.deadline_ns > now_ns) return false;
      expired.push_back(std::move(waiter));
      return true;
    });
  }
  stats_.timed_out += expired.size();
  return expired;
}

void GrammarCompiler::Store(std::string key, Result<Compiled> result) {
  const size_t bytes = 2 * key.size() + (result.ok() ? (*result)->memory_bytes() : 0);
  if (bytes > options_.max_cache_bytes) return;
  entries_.push_back({key, std::move(result), bytes});
  by_key_[std::move(key)] = std::prev(entries_.end());
  stats_.cache_bytes += bytes;
  while (stats_.cache_bytes > options_.max_cache_bytes ||
         entries_.size() > options_.max_cache_entries) {
    EvictOldest();
  }
}

void GrammarCompiler::EvictOldest() {
  stats_.cache_bytes -= entries_.front().bytes;
  by_key_.erase(entries_.front().key);
  entries_.pop_front();
}

GrammarCompiler::Stats GrammarCompiler::stats() const {
  std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.cache_entries = entries_.size();
  return stats;
}

}  // namespace hayate::grammar
