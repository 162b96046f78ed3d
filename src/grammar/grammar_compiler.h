#pragma once
// Compiles grammars away from the engine and the http threads, once each: a bounded cache, worker
// threads of its own, and a limit on the time that anybody waits. Any thread.

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"
#include "grammar/compiled_grammar.h"

namespace hayate::grammar {

class GrammarCompiler {
 public:
  struct Options {
    int num_threads = 2;
    // While a source waits, a thread that has been at another for so long gets a substitute, up to
    // so many threads in all, and goes on with what the others leave it: nobody waits for seconds
    // behind somebody else's source.
    int64_t patience_ns = 200'000'000;
    int max_threads = 6;
    // A compilation cannot be stopped, only no longer waited for: its thread is busy until it ends,
    // and then the result is cached after all.
    int64_t time_limit_ns = 10'000'000'000;
    size_t max_cache_bytes = size_t{256} << 20;
    size_t max_cache_entries = 4096;
    size_t max_grammar_bytes = size_t{64} << 20;  // one larger is refused
    size_t max_waiting = 256;                     // beyond it: kResourceExhausted
  };
  using Compiled = std::shared_ptr<const CompiledGrammar>;
  using Done = std::function<void(Result<Compiled>)>;

  struct Stats {
    uint64_t hits = 0;
    uint64_t compiled = 0;
    uint64_t failed = 0;
    uint64_t timed_out = 0;
    size_t cache_bytes = 0;
    size_t cache_entries = 0;
  };

  // The clock outlives the compiler.
  GrammarCompiler(std::shared_ptr<const Vocabulary> vocabulary, const Options& options,
                  const Clock& clock);
  // Calls back whoever still waits with kUnavailable, then waits for the compilations under way.
  ~GrammarCompiler();

  // `done` is called once: at once on the caller's thread when the answer is cached or the queue is
  // full, else later on a thread of the compiler. Requests for one source share one compilation.
  // Errors of the source are cached too.
  void Compile(const GrammarSource& source, Done done);
  // The same, waiting for it. Not on a thread that others wait for.
  Result<Compiled> CompileNow(const GrammarSource& source);

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  Stats stats() const;

 private:
  struct Waiter {
    Done done;
    std::string field;  // of the source that waits
    int64_t deadline_ns;
  };
  struct Job {
    GrammarSource source;
    std::vector<Waiter> waiters;
  };
  struct Entry {
    std::string key;
    Result<Compiled> result;
    size_t bytes;
  };

  static std::string KeyOf(const GrammarSource& source);
  struct Worker {
    NamedThread thread;
    pid_t id = 0;
    int64_t busy_since_ns = kIdle;
    bool substituted = false;  // ends when it is done
    bool done = false;
  };
  static constexpr int64_t kIdle = -1;

  void AddWorker();
  void WorkerMain(Worker& self);
  void WatchdogMain();
  // The worker that a source waits for and that has a substitute next; null: none.
  Worker* NextToSubstitute();
  // When that one's time or the earliest deadline comes. The largest value where nobody waits.
  int64_t NextAlarm();
  std::list<Worker> TakeDoneWorkers();
  // Takes the waiters whose time is over.
  std::vector<Waiter> TakeExpired(int64_t now_ns);
  void Store(std::string key, Result<Compiled> result);
  void EvictOldest();

  const std::shared_ptr<const Vocabulary> vocabulary_;
  const Options options_;
  const Clock& clock_;

  mutable std::mutex mutex_;
  std::condition_variable work_arrived_;
  std::condition_variable deadline_changed_;
  // Guarded by mutex_.
  std::list<Entry> entries_;  // least recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
  std::unordered_map<std::string, Job> jobs_;  // waiting or being compiled, by key
  std::list<std::string> queue_;               // keys of the jobs that wait
  Stats stats_;
  bool stopping_ = false;
  std::list<Worker> workers_;

  NamedThread watchdog_;
};

}  // namespace hayate::grammar
