// What the http thread pays for streamed events, in its own CPU time, and what an idle connection
// costs in memory. Clients only drain.

#include <benchmark/benchmark.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <thread>

#include "http/detail/socket.h"
#include "http/server.h"
#include "http/sse.h"

namespace hayate::http {
namespace {

// Runs `body` on the thread and returns the CPU time that the thread spent, flushing included.
class StreamBench {
 public:
  explicit StreamBench(int num_clients) : server_(std::move(*Server::Create({}))) {
    std::promise<void> all_held;
    (void)server_->Start([&](Request& request, ResponseWriter writer) {
      if (request.path == "/idle") return writer.Send({}, "ok");
      writer.BeginStream({.content_type = kSseContentType});
      writers_.push_back(std::move(writer));
      if (writers_.size() == static_cast<size_t>(num_clients)) all_held.set_value();
    });
    const Endpoint endpoint{"127.0.0.1", server_->port()};
    for (int i = 0; i < num_clients; ++i) {
      sockets_.push_back(std::move(*Socket::Connect(*Resolve(endpoint))));
      pollfd wait{sockets_.back().fd(), POLLOUT, 0};
      poll(&wait, 1, 10'000);
      (void)sockets_.back().Write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    all_held.get_future().wait();
    drain_ = std::thread([this] { Drain(); });
  }

  ~StreamBench() {
    (void)server_->Shutdown(std::chrono::milliseconds(0));
    drain_.join();
  }

  // One engine step: `events_per_stream` events to every stream. Returns seconds of http thread
  // CPU.
  double Step(int events_per_stream, std::string_view data) {
    std::promise<double> spent;
    server_->threads()[0]->TryPost([&] {
      const double begin = ThreadSeconds();
      for (ResponseWriter& writer : writers_) {
        for (int i = 0; i < events_per_stream; ++i) {
          event_.clear();
          AppendSseEvent(event_, data);
          writer.Write(event_);
        }
      }
      // Runs in the next turn, after this turn's flush.
      server_->threads()[0]->TryPost([&spent, begin] { spent.set_value(ThreadSeconds() - begin); });
    });
    return spent.get_future().get();
  }

 private:
  static double ThreadSeconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  void Drain() {
    std::vector<pollfd> waits;
    for (Socket& socket : sockets_) waits.push_back({socket.fd(), POLLIN, 0});
    static char buffer[1 << 16];
    size_t open = sockets_.size();
    while (open > 0 && poll(waits.data(), waits.size(), 10'000) > 0) {
      for (size_t i = 0; i < waits.size(); ++i) {
        if (waits[i].revents == 0) continue;
        const IoResult result = sockets_[i].Read(buffer);
        if (result.kind == IoResult::Kind::kOk || result.kind == IoResult::Kind::kWouldBlock)
          continue;
        waits[i].fd = -1;
        --open;
      }
    }
  }

  std::unique_ptr<Server> server_;
  std::vector<ResponseWriter> writers_;  // owner: http thread
  std::string event_;
  std::vector<Socket> sockets_;
  std::thread drain_;
};

// Args: streams, events per stream and step.
void BM_StreamedEvents(benchmark::State& state) {
  const auto num_streams = static_cast<int>(state.range(0));
  const auto events_per_stream = static_cast<int>(state.range(1));
  StreamBench bench(num_streams);
  const std::string data(180, 'x');  // an OpenAI chat chunk
  for (auto _ : state) state.SetIterationTime(bench.Step(events_per_stream, data));
  state.SetItemsProcessed(state.iterations() * num_streams * events_per_stream);
}
BENCHMARK(BM_StreamedEvents)
    ->UseManualTime()
    ->Args({64, 1})
    ->Args({64, 4})
    ->Args({64, 16})
    ->Args({1, 1});

void BM_FormatEvent(benchmark::State& state) {
  const std::string data(180, 'x');
  std::string out;
  for (auto _ : state) {
    out.clear();
    AppendSseEvent(out, data);
    benchmark::DoNotOptimize(out.data());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_FormatEvent);

size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0;
  size_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// Keep-alive connections that have served one request; both ends are in this process.
void BM_IdleConnections(benchmark::State& state) {
  constexpr int kConnections = 200;
  for (auto _ : state) {
    auto server = std::move(*Server::Create({}));
    (void)server->Start([](Request&, ResponseWriter writer) { writer.Send({}, "ok"); });
    const SocketAddress address = *Resolve({"127.0.0.1", server->port()});
    const size_t before = ResidentBytes();
    std::vector<Socket> sockets;
    char buffer[4096];
    for (int i = 0; i < kConnections; ++i) {
      sockets.push_back(std::move(*Socket::Connect(address)));
      pollfd wait{sockets.back().fd(), POLLOUT, 0};
      poll(&wait, 1, 10'000);
      (void)sockets.back().Write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
      wait.events = POLLIN;
      poll(&wait, 1, 10'000);
      (void)sockets.back().Read(buffer);
    }
    state.counters["bytes_per_connection"] =
        static_cast<double>(ResidentBytes() - before) / kConnections;
    (void)server->Shutdown(std::chrono::milliseconds(0));
  }
}
BENCHMARK(BM_IdleConnections)->Iterations(1);

}  // namespace
}  // namespace hayate::http
