#include "http/server.h"

#include <condition_variable>
#include <future>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "http/detail/listener.h"
#include "http/detail/shard.h"

namespace hayate::http {

struct Server::Impl {
  explicit Impl(ServerOptions server_options) : options(std::move(server_options)) {}

  // Waits until every connection is gone or the time is over; says which.
  bool WaitUntilEmpty(std::chrono::milliseconds limit);
  Status Shutdown(std::chrono::milliseconds grace);

  const ServerOptions options;
  uint16_t port = 0;
  // Members die bottom up: listener and shards need the loops, which the stopped threads still own.
  std::vector<std::unique_ptr<IoThread>> threads;
  std::vector<std::unique_ptr<Shard>> shards;  // [threads.size()]
  std::unique_ptr<Listener> listener;
  // Signals, unlike posted tasks, are never refused. [threads.size()] each.
  std::vector<std::unique_ptr<Wakeup>> drain_signals;
  std::vector<std::unique_ptr<Wakeup>> abort_signals;

  enum class Stage { kCreated, kStarted, kStopped };
  Stage stage = Stage::kCreated;  // caller's thread

  std::mutex mutex;
  std::condition_variable emptied;
  size_t num_busy_shards = 0;  // guarded by mutex; not yet drained
};

Result<std::unique_ptr<Server>> Server::Create(ServerOptions options) {
  if (options.num_threads < 1 || options.max_connections < 1) {
    return Error(ErrorCode::kInvalidArgument, "http: threads and connections must be at least 1");
  }
  auto impl = std::make_unique<Impl>(std::move(options));
  Socket socket(impl->options.inherited_fd);
  if (!socket.open()) {
    ASSIGN_OR_RETURN(socket, Socket::Bind(impl->options.listen));
  }
  impl->port = socket.LocalPort();
  for (int i = 0; i < impl->options.num_threads; ++i) {
    ASSIGN_OR_RETURN(auto thread, IoThread::Start({.name = fmt::format("http-{}", i),
                                                   .index = i,
                                                   .max_posted = impl->options.max_posted}));
    impl->threads.push_back(std::move(thread));
    impl->shards.push_back(std::make_unique<Shard>(impl->options, *impl->threads.back()));
  }
  impl->listener = std::make_unique<Listener>(std::move(socket), impl->shards);
  impl->num_busy_shards = impl->shards.size();
  for (size_t i = 0; i < impl->shards.size(); ++i) {
    Impl* raw = impl.get();
    Shard* shard = raw->shards[i].get();
    raw->drain_signals.push_back(std::make_unique<Wakeup>(shard->thread(), [raw, shard, i] {
      if (i == 0) raw->listener->Close();
      shard->Drain();
    }));
    raw->abort_signals.push_back(
        std::make_unique<Wakeup>(shard->thread(), [shard] { shard->AbortAll(); }));
  }
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { (void)Shutdown(std::chrono::milliseconds(0)); }

uint16_t Server::port() const { return impl_->port; }

int Server::listen_fd() const { return impl_->listener->fd(); }

std::span<const std::unique_ptr<IoThread>> Server::threads() const { return impl_->threads; }

int Server::num_connections() const {
  int total = 0;
  for (const auto& shard : impl_->shards) total += shard->num_connections();
  return total;
}

Status Server::Start(Handler handler) {
  CHECK(impl_->stage == Impl::Stage::kCreated) << "a server starts once";
  Impl* impl = impl_.get();
  for (const auto& shard : impl->shards) {
    shard->SetHandler(handler);
    shard->SetOnEmpty([impl, reported = false]() mutable {
      if (std::exchange(reported, true)) return;
      std::lock_guard lock(impl->mutex);
      --impl->num_busy_shards;
      impl->emptied.notify_all();
    });
  }
  impl->stage = Impl::Stage::kStarted;
  std::promise<Status> started;
  const bool posted =
      impl->threads[0]->TryPost([impl, &started] { started.set_value(impl->listener->Start()); });
  CHECK(posted) << "nothing else posts before Start";
  return started.get_future().get();
}

bool Server::Impl::WaitUntilEmpty(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex);
  return emptied.wait_for(lock, limit, [this] { return num_busy_shards == 0; });
}

Status Server::Impl::Shutdown(std::chrono::milliseconds grace) {
  if (stage == Stage::kStopped) return OkStatus();
  bool clean = true;
  if (stage == Stage::kStarted) {
    for (const auto& signal : drain_signals) signal->Signal();
    clean = WaitUntilEmpty(grace);
    if (!clean) {
      for (const auto& signal : abort_signals) signal->Signal();
      // Aborting is immediate unless a handler blocks its thread, and then the join waits for it.
      WaitUntilEmpty(std::chrono::seconds(1));
    }
  }
  stage = Stage::kStopped;
  for (const auto& thread : threads) thread->Stop();
  if (clean) return OkStatus();
  return Error(ErrorCode::kDeadlineExceeded, "connections were still open after {} ms",
               grace.count());
}

Status Server::Shutdown(std::chrono::milliseconds grace) { return impl_->Shutdown(grace); }

}  // namespace hayate::http
