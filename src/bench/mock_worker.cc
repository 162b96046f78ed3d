#include "bench/mock_worker.h"

#include <fmt/format.h>

#include <charconv>
#include <list>
#include <mutex>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "http/event_loop.h"
#include "http/server.h"
#include "http/sse.h"

namespace hayate::bench {
namespace {

constexpr std::string_view kEvent =
    R"(data: {"id":"mock","object":"chat.completion.chunk","created":1,"model":"mock",)"
    R"("choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]})"
    "\n\n";
constexpr std::string_view kAnswer =
    R"({"id":"mock","object":"chat.completion","created":1,"model":"mock","choices":[{"index":0,)"
    R"("message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],)"
    R"("usage":{"prompt_tokens":8,"completion_tokens":1,"total_tokens":9}})";
// Of a stream, written in one turn when no pace is set.
constexpr int kEventsPerTurn = 64;
constexpr size_t kMaxUnsentBytes = 128 << 10;

// The whole number behind "key": in a body, or `fallback`.
int64_t NumberIn(std::string_view body, std::string_view key, int64_t fallback) {
  const size_t at = body.find(key);
  if (at == std::string_view::npos) return fallback;
  size_t begin = at + key.size();
  while (begin < body.size() && (body[begin] == ' ' || body[begin] == ':')) ++begin;
  int64_t value = fallback;
  std::from_chars(body.data() + begin, body.data() + body.size(), value);
  return value;
}

}  // namespace

// Answers of one thread that take time.
class MockLane {
 public:
  MockLane(const MockWorkerOptions& options, http::IoThread& thread, uint64_t seed)
      : options_(options), loop_(thread.loop()), rng_(seed) {}

  void Answer(http::Request& request, http::ResponseWriter writer) {
    const double roll = rng_.NextFloat();
    double share = options_.error_rate;
    if (roll < share) {
      return writer.Send({.status = 500, .content_type = "application/json"},
                         R"({"error":{"message":"mock failure","type":"server_error"}})");
    }
    if (roll < (share += options_.close_rate)) {
      writer.BeginStream({});
      return;  // destroyed in the middle: the connection is cut
    }
    Fate fate = Fate::kWhole;
    if (roll < (share += options_.cut_rate)) {
      fate = Fate::kCut;
    } else if (roll < share + options_.hang_rate) {
      fate = Fate::kHang;
    }
    const bool stream = request.body.find("\"stream\":true") != std::string::npos ||
                        request.body.find("\"stream\": true") != std::string::npos;
    if (!stream && options_.first_token.count() == 0 && fate == Fate::kWhole) {
      return writer.Send({.content_type = "application/json"}, kAnswer);
    }
    // Routers may rename the one to the other.
    const int64_t tokens =
        NumberIn(request.body, "\"max_tokens\"",
                 NumberIn(request.body, "\"max_completion_tokens\"", options_.num_tokens));
    answers_.emplace_back(*this, std::move(writer), tokens, stream, fate);
    answers_.back().Begin(std::prev(answers_.end()));
  }

  void Clear() { answers_.clear(); }

 private:
  enum class Fate { kWhole, kCut, kHang };

  class Timed {
   public:
    Timed(MockLane& lane, http::ResponseWriter writer, int64_t tokens, bool stream, Fate fate)
        : lane_(lane),
          writer_(std::move(writer)),
          left_(tokens),
          stream_(stream),
          fate_(fate),
          timer_(lane.loop_, [this] { Step(); }) {}

    void Begin(std::list<Timed>::iterator self) {
      self_ = self;
      writer_.OnClose([this] { lane_.answers_.erase(self_); });
      if (fate_ == Fate::kHang) return;
      if (lane_.options_.first_token.count() == 0) return Step();
      timer_.Set(lane_.loop_.After(lane_.options_.first_token));
    }

   private:
    void Step() {
      if (!stream_) {
        if (fate_ == Fate::kWhole) writer_.Send({.content_type = "application/json"}, kAnswer);
        return End();
      }
      if (!begun_) {
        writer_.BeginStream({.content_type = http::kSseContentType});
        begun_ = true;
      }
      const bool paced = lane_.options_.inter_token.count() > 0;
      for (int i = 0; i < (paced ? 1 : kEventsPerTurn) && left_ > 0; ++i, --left_) {
        if (fate_ == Fate::kCut && left_ == 1) return End();  // without the end
        writer_.Write(kEvent);
      }
      if (left_ <= 0) {
        writer_.Write(http::kSseDone);
        writer_.End();
        return End();
      }
      if (writer_.pending_bytes() > kMaxUnsentBytes) {
        return writer_.OnDrained([this] { Step(); });
      }
      timer_.Set(lane_.loop_.After(lane_.options_.inter_token));
    }

    void End() { lane_.answers_.erase(self_); }

    MockLane& lane_;
    http::ResponseWriter writer_;
    int64_t left_;
    bool stream_;
    Fate fate_;
    bool begun_ = false;
    http::Timer timer_;
    std::list<Timed>::iterator self_;
  };

  const MockWorkerOptions& options_;
  http::EventLoop& loop_;
  Rng rng_;
  std::list<Timed> answers_;
};

struct MockWorker::Impl {
  void Handle(http::Request& request, http::ResponseWriter writer);

  MockWorkerOptions options;
  std::unique_ptr<http::Server> server;
  std::vector<std::unique_ptr<MockLane>> lanes;  // [threads]
};

void MockWorker::Impl::Handle(http::Request& request, http::ResponseWriter writer) {
  const auto json = [&writer](const std::string& body) {
    writer.Send({.content_type = "application/json"}, body);
  };
  if (request.method == "POST") {
    return lanes[request.thread.index()]->Answer(request, std::move(writer));
  }
  if (request.path == "/health") return json("");
  if (request.path == "/server_info" || request.path == "/get_server_info") {
    return json(fmt::format(
        R"({{"model_path":"{0}","tokenizer_path":"{0}","served_model_name":"{0}","tp_size":1,)"
        R"("dp_size":1,"load_balance_method":"round_robin","disaggregation_mode":"{1}",)"
        R"("max_running_requests":64,"context_length":131072,"version":"mock"}})",
        options.model, options.disaggregation_mode));
  }
  if (request.path == "/model_info" || request.path == "/get_model_info") {
    return json(fmt::format(
        R"({{"model_path":"{0}","tokenizer_path":"{0}","is_generation":true,"model_type":"llama",)"
        R"("architectures":["LlamaForCausalLM"]}})",
        options.model));
  }
  if (request.path == "/v1/models") {
    return json(fmt::format(R"({{"object":"list","data":[{{"id":"{}","object":"model","created":1,)"
                            R"("owned_by":"sglang","max_model_len":131072}}]}})",
                            options.model));
  }
  writer.Send({.status = 404, .content_type = "application/json"},
              R"({"error":{"message":"no such route","type":"not_found_error"}})");
}

Result<std::unique_ptr<MockWorker>> MockWorker::Start(const MockWorkerOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  ASSIGN_OR_RETURN(impl->server, http::Server::Create({.listen = options.listen,
                                                       .num_threads = options.num_threads,
                                                       .max_connections = 65536,
                                                       .max_body_bytes = size_t{1} << 30,
                                                       .max_pending_bytes = 64 << 20}));
  for (const auto& thread : impl->server->threads()) {
    impl->lanes.push_back(
        std::make_unique<MockLane>(impl->options, *thread, options.seed + impl->lanes.size()));
  }
  Impl* raw = impl.get();
  RETURN_IF_ERROR(impl->server->Start([raw](http::Request& request, http::ResponseWriter writer) {
    raw->Handle(request, std::move(writer));
  }));
  return std::unique_ptr<MockWorker>(new MockWorker(std::move(impl)));
}

MockWorker::MockWorker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

MockWorker::~MockWorker() {
  (void)impl_->server->Shutdown(std::chrono::milliseconds(0));
  for (const auto& lane : impl_->lanes) lane->Clear();
}

uint16_t MockWorker::port() const { return impl_->server->port(); }

}  // namespace hayate::bench
