// What the front end pays, in CPU time of the thread that pays it, with an engine that costs
// nothing: tokens come ready.
//   BM_TokenToBytes: detokenise, stop strings, parts, JSON, SSE, for each surface.
//   BM_TokenToSocket: the same for many streams of a server, writes to the sockets included.
//   BM_SendFloor: those writes alone, bytes of one token to each of many sockets in a bare loop.
//   BM_PacedStreams: requests over HTTP, then steps at a given rate, from the outbox to the
//     sockets; what is ready when the thread gets to it leaves in one write.
//   BM_Request…: body to prompt of a conversation of about 1000 tokens, and its tokenising.

#include <arpa/inet.h>
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "api/choice.h"
#include "api/field_reader.h"
#include "api/formatter.h"
#include "api/messages_parse.h"
#include "api/openai_parse.h"
#include "api/prepare.h"
#include "api/responses_parse.h"
#include "api/testing/byte_model.h"
#include "api/testing/served_tokens.h"
#include "http/server.h"
#include "http/sse.h"

namespace hayate::api {
namespace {

// One streamed answer of a surface, fed token by token.
class Answer {
 public:
  Answer(Dialect dialect, const ServedModel& model) : model_(model) {
    spec_.dialect = dialect;
    spec_.stream = true;
    spec_.prompts.emplace_back(std::string("p"));
    spec_.response = ResponseFields{.echo = R"("tools":[])",
                                    .input = std::make_shared<std::vector<std::string>>()};
    spec_.stop_strings = std::make_shared<const text::StopStrings>(
        text::StopStrings::Create({"</answer>", "\n\nUser:"}).value());
    choice_.emplace(spec_, model_, Choice::Prompt{.tokens = 1});
    const AnswerHead head{
        .id = "chatcmpl-0123456789abcdef01234567", .created = 1, .spec = &spec_, .model = &model_};
    formatter_ = Make(head);
  }

  // Appends the events of the next token.
  void Next(std::string& out) {
    event_.tokens = {kTokens[next_++ % kTokens.size()]};
    const ChoiceDelta delta = choice_->Push(event_);
    formatter_->Delta({0, 0, &*choice_, &prompt_}, delta, {}, out);
  }

 private:
  static constexpr std::array<TokenId, 4> kTokens = {testing::kThe, ' ', 'a', testing::kThe};

  std::unique_ptr<Formatter> Make(const AnswerHead& head) const {
    switch (spec_.dialect) {
      case Dialect::kChat:
        return MakeChatFormatter(head);
      case Dialect::kCompletion:
        return MakeCompletionFormatter(head);
      case Dialect::kGenerate:
        return MakeGenerateFormatter(head);
      case Dialect::kResponses:
        return MakeResponsesFormatter(head, nullptr);
      case Dialect::kMessages:
        return MakeMessagesFormatter(head);
      default:
        CHECK(false) << "not measured";
        return nullptr;
    }
  }

  const ServedModel& model_;
  GenerationSpec spec_;
  std::vector<TokenId> prompt_ = {'p'};
  std::optional<Choice> choice_;
  std::unique_ptr<Formatter> formatter_;
  TokenEvent event_;
  size_t next_ = 0;
};

void BM_TokenToBytes(benchmark::State& state) {
  constexpr int kTokensAnswer = 512;  // of one answer: whole answers are kept by some surfaces
  const ServedModel model = testing::ByteModel();
  const auto dialect = static_cast<Dialect>(state.range(0));
  std::string out;
  for (auto _ : state) {
    Answer answer(dialect, model);
    for (int i = 0; i < kTokensAnswer; ++i) {
      out.clear();
      answer.Next(out);
      benchmark::DoNotOptimize(out.data());
    }
  }
  state.SetItemsProcessed(state.iterations() * kTokensAnswer);
}
BENCHMARK(BM_TokenToBytes)
    ->Arg(static_cast<int>(Dialect::kChat))
    ->Arg(static_cast<int>(Dialect::kCompletion))
    ->Arg(static_cast<int>(Dialect::kResponses))
    ->Arg(static_cast<int>(Dialect::kMessages));

int ConnectTo(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

int Connect(uint16_t port) {
  const int fd = ConnectTo(port);
  constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  CHECK_EQ(write(fd, kRequest.data(), kRequest.size()), static_cast<ssize_t>(kRequest.size()));
  return fd;
}

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Takes what has come out of all sockets once in a while, until they are closed: as a client on
// another machine it is no thread that a write would have to wake.
class Drain {
 public:
  explicit Drain(std::vector<int> sockets)
      : sockets_(std::move(sockets)), thread_([this] { Run(); }) {}
  ~Drain() {
    thread_.join();
    for (const int fd : sockets_) close(fd);
  }

 private:
  void Run() {
    std::vector<char> buffer(1 << 20);
    std::vector<int> open = sockets_;
    while (!open.empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::erase_if(open, [&](int fd) {
        ssize_t got = 0;
        do {
          got = recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
        } while (got > 0);
        return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
      });
    }
  }

  const std::vector<int> sockets_;
  std::thread thread_;
};

// Streams of one http thread; clients only drain.
class Streams {
 public:
  explicit Streams(int num_streams)
      : model_(testing::ByteModel()), server_(std::move(*http::Server::Create({}))) {
    std::promise<void> all;
    (void)server_->Start([&](http::Request&, http::ResponseWriter writer) {
      writer.BeginStream({.content_type = http::kSseContentType});
      writers_.push_back(std::move(writer));
      answers_.push_back(std::make_unique<Answer>(Dialect::kChat, model_));
      if (writers_.size() == static_cast<size_t>(num_streams)) all.set_value();
    });
    std::vector<int> sockets;
    for (int i = 0; i < num_streams; ++i) sockets.push_back(Connect(server_->port()));
    all.get_future().wait();
    drain_.emplace(std::move(sockets));
  }
  ~Streams() { (void)server_->Shutdown(std::chrono::milliseconds(0)); }

  // One step of an engine: a token for every stream. Returns seconds of the http thread.
  double Step() {
    std::promise<double> spent;
    http::IoThread& thread = *server_->threads()[0];
    thread.TryPost([&] {
      const double begin = ThreadSeconds();
      for (size_t i = 0; i < writers_.size(); ++i) {
        out_.clear();
        answers_[i]->Next(out_);
        writers_[i].Write(out_);
      }
      // Runs in the next turn, after this turn's flush.
      thread.TryPost([&spent, begin] { spent.set_value(ThreadSeconds() - begin); });
    });
    return spent.get_future().get();
  }

 private:
  ServedModel model_;
  std::unique_ptr<http::Server> server_;
  std::vector<http::ResponseWriter> writers_;     // owner: http thread
  std::vector<std::unique_ptr<Answer>> answers_;  // owner: http thread
  std::string out_;
  std::optional<Drain> drain_;  // ends when the server has closed its sockets
};

// Arg: streams.
void BM_TokenToSocket(benchmark::State& state) {
  Streams streams(static_cast<int>(state.range(0)));
  for (auto _ : state) state.SetIterationTime(streams.Step());
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_TokenToSocket)->UseManualTime()->Arg(1)->Arg(64)->Arg(256);

// Arg: streams.
void BM_SendFloor(benchmark::State& state) {
  std::string event;
  {
    const ServedModel model = testing::ByteModel();
    Answer(Dialect::kChat, model).Next(event);
    event = fmt::format("{:x}\r\n{}\r\n", event.size(), event);
  }
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  CHECK_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  CHECK_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  CHECK_EQ(listen(listener, 1024), 0);
  std::vector<int> clients, served;
  for (int64_t i = 0; i < state.range(0); ++i) {
    clients.push_back(Connect(ntohs(address.sin_port)));
    served.push_back(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK));
    const int on = 1;
    setsockopt(served.back(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  close(listener);
  {
    const Drain drain(clients);
    for (auto _ : state) {
      const double begin = ThreadSeconds();
      for (const int fd : served) {
        CHECK_GT(send(fd, event.data(), event.size(), MSG_NOSIGNAL), 0);
      }
      state.SetIterationTime(ThreadSeconds() - begin);
    }
    for (const int fd : served) close(fd);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_SendFloor)->UseManualTime()->Arg(1)->Arg(64)->Arg(256);

// Asks the service for a streamed chat.
int Ask(uint16_t port, std::string_view body) {
  const int fd = ConnectTo(port);
  const std::string request =
      fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{}",
                  body.size(), body);
  CHECK_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  return fd;
}

// Args: streams, steps a second. Items are events; the time is the http thread's.
void BM_PacedStreams(benchmark::State& state) {
  constexpr int kStepsTimed = 200;
  const std::chrono::nanoseconds period(1'000'000'000 / state.range(1));
  testing::ServedTokens served;
  std::vector<int> sockets;
  for (int64_t i = 0; i < state.range(0); ++i) {
    sockets.push_back(Ask(served.port(), R"({"messages":[{"role":"user","content":"the"}],)"
                                         R"("stream":true,"stop":["</answer>"]})"));
  }
  served.Await(sockets.size());
  std::optional<Drain> drain(std::in_place, std::move(sockets));
  const auto seconds_of_thread = [&] {
    std::promise<double> seconds;
    served.thread().TryPost([&] { seconds.set_value(ThreadSeconds()); });
    return seconds.get_future().get();
  };
  double wall_s = 0;
  for (auto _ : state) {
    const double begin = seconds_of_thread();
    const auto start = std::chrono::steady_clock::now();
    for (int step = 0; step < kStepsTimed; ++step) {
      while (std::chrono::steady_clock::now() < start + step * period) {
      }
      served.Step(testing::kThe);
    }
    // What was signalled before the first of these is written out before the second.
    (void)seconds_of_thread();
    state.SetIterationTime(seconds_of_thread() - begin);
    wall_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  const int64_t events = state.iterations() * kStepsTimed * state.range(0);
  state.SetItemsProcessed(events);
  state.counters["delivered_per_s"] = static_cast<double>(events) / wall_s;
  served.Close();
}
BENCHMARK(BM_PacedStreams)
    ->UseManualTime()
    ->Args({64, 1000})
    ->Args({64, 2000})
    ->Args({64, 5000})
    ->Args({64, 8000})
    ->Args({256, 2000});

// A conversation of about 1000 tokens of the byte model.
std::string Conversation() {
  std::string messages = R"("messages":[)";
  for (int turn = 0; turn < 10; ++turn) {
    const char* role = turn % 2 == 0 ? "user" : "assistant";
    messages += std::string(turn > 0 ? "," : "") + R"({"role":")" + role + R"(","content":")";
    for (int i = 0; i < 18; ++i) messages += "the\\nthe ";
    messages += "\"}";
  }
  return messages + "]";
}

enum class Surface : int { kChat, kMessages, kResponses };

std::string Body(Surface surface) {
  std::string conversation = Conversation();
  if (surface == Surface::kResponses) conversation.replace(0, 10, R"("input")");
  return R"({"model":"default","temperature":0.5,"max_tokens":9,"max_output_tokens":9,"stream":true,)" +
         conversation + "}";
}

Result<GenerationSpec> Parse(Surface surface, simdjson::dom::object body,
                             const ServedModel& model) {
  std::vector<std::string> unknown;
  switch (surface) {
    case Surface::kChat:
      return ParseChatRequest(body, model, unknown);
    case Surface::kMessages:
      return ParseMessagesRequest(body, model, MessagesUse::kGenerate, unknown);
    case Surface::kResponses:
      return ParseResponsesRequest(
          body, model,
          [](std::string_view) -> Result<std::vector<std::string>> {
            return Status(ErrorCode::kNotFound, "none");
          },
          unknown);
  }
  return Status(ErrorCode::kInternal, "no such surface");
}

ServedModel RoomyModel() {
  ServedModel model = testing::ByteModel();
  model.max_context = 100'000;
  return model;
}

// JSON and template.
void BM_RequestToPrompt(benchmark::State& state) {
  const ServedModel model = RoomyModel();
  const auto surface = static_cast<Surface>(state.range(0));
  const std::string body = Body(surface);
  for (auto _ : state) {
    simdjson::dom::parser parser;
    auto spec = Parse(surface, *ParseBody(parser, body), model);
    CHECK(spec.ok()) << spec.status().message();
    benchmark::DoNotOptimize(
        model.chat_template->Render(std::get<text::ChatInput>(spec->prompts[0])));
  }
}
BENCHMARK(BM_RequestToPrompt)->Arg(0)->Arg(1)->Arg(2);

// The rest of the way: ids of the prompt.
void BM_RequestTokenise(benchmark::State& state) {
  const ServedModel model = RoomyModel();
  simdjson::dom::parser parser;
  const std::string body = Body(Surface::kChat);
  const auto spec = Parse(Surface::kChat, *ParseBody(parser, body), model);
  const std::string prompt =
      model.chat_template->Render(std::get<text::ChatInput>(spec->prompts[0])).value();
  size_t tokens = 0;
  for (auto _ : state) {
    auto ids = model.tokenizer->Encode(prompt, {.add_bos_eos = text::AddBosEos::kNo});
    tokens = ids->size();
    benchmark::DoNotOptimize(ids);
  }
  state.counters["tokens"] = static_cast<double>(tokens);
}
BENCHMARK(BM_RequestTokenise);

}  // namespace
}  // namespace hayate::api
