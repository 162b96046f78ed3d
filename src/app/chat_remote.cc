// A server as a chat partner: /v1/chat/completions, streamed.
//
//   client thread:  bytes → SSE → delta text → Mailbox
//   caller:         Mailbox → on_text

#include <simdjson.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <utility>

#include "app/chat_partner.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "http/client.h"
#include "http/sse.h"

namespace hayate::app {
namespace {

constexpr size_t kMaxEventBytes = 1 << 20;
constexpr size_t kMaxErrorBytes = 64 << 10;

// One answer on its way from the client thread to the caller.
struct Mailbox {
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex, as all that follows.
  std::string text;  // not yet taken
  std::optional<Status> end;
  AnswerStats stats;

  void Add(std::string_view piece) {
    {
      std::lock_guard lock(mutex);
      text += piece;
    }
    changed.notify_one();
  }
  // The first end counts.
  void End(Status status) {
    {
      std::lock_guard lock(mutex);
      if (!end) end = std::move(status);
    }
    changed.notify_one();
  }
};

std::string ErrorMessage(int http_status, const std::string& body) {
  simdjson::dom::parser parser;
  std::string_view message;
  if (parser.parse(body)["error"]["message"].get(message) != simdjson::SUCCESS) {
    message = http::ReasonPhrase(http_status);
  }
  return fmt::format("the server says: {} (HTTP {})", message, http_status);
}

// Reads one streamed answer. Owner: the client thread.
class AnswerReader {
 public:
  explicit AnswerReader(std::shared_ptr<Mailbox> mailbox) : mailbox_(std::move(mailbox)) {}

  void Head(int status) { http_status_ = status; }

  void Data(std::string_view bytes) {
    if (http_status_ != 200) {
      error_body_ += bytes.substr(0, kMaxErrorBytes - error_body_.size());
      return;
    }
    parser_.Feed(bytes);
    http::SseEvent event;
    http::SseParser::Outcome outcome;
    while ((outcome = parser_.Next(event)) == http::SseParser::Outcome::kEvent) Read(event.data);
    if (outcome == http::SseParser::Outcome::kTooLarge) {
      mailbox_->End(Status(ErrorCode::kDataLoss, "the server sent too large an event"));
    }
  }

  void Done(const Status& status) {
    if (status.ok() && http_status_ != 200) {
      return mailbox_->End(
          Status(ErrorCode::kUnavailable, ErrorMessage(http_status_, error_body_)));
    }
    mailbox_->End(status);
  }

 private:
  void Read(std::string_view data) {
    if (data == "[DONE]") return;
    simdjson::dom::element root;
    if (json_.parse(data.data(), data.size()).get(root) != simdjson::SUCCESS) {
      return mailbox_->End(
          Status(ErrorCode::kDataLoss, "the server sent an event that is no JSON"));
    }
    std::string_view text;
    if (root["error"]["message"].get(text) == simdjson::SUCCESS) {
      return mailbox_->End(Error(ErrorCode::kUnavailable, "the server says: {}", text));
    }
    const auto delta = root["choices"].at(0)["delta"];
    for (const char* name : {"reasoning_content", "content"}) {
      if (delta[name].get(text) == simdjson::SUCCESS && !text.empty()) mailbox_->Add(text);
    }
    int64_t prompt = 0;
    int64_t completion = 0;
    if (root["usage"]["prompt_tokens"].get(prompt) == simdjson::SUCCESS &&
        root["usage"]["completion_tokens"].get(completion) == simdjson::SUCCESS) {
      std::lock_guard lock(mailbox_->mutex);
      mailbox_->stats.prompt_tokens = static_cast<int32_t>(prompt);
      mailbox_->stats.completion_tokens = static_cast<int32_t>(completion);
    }
  }

  std::shared_ptr<Mailbox> mailbox_;
  http::SseParser parser_{kMaxEventBytes};
  simdjson::dom::parser json_;
  int http_status_ = 0;
  std::string error_body_;
};

class RemotePartner final : public ChatPartner {
 public:
  static Result<std::unique_ptr<ChatPartner>> Create(RemotePartnerOptions options) {
    ASSIGN_OR_RETURN(const ServerFacts facts,
                     AskServer(options.address, options.api_key, options.model));
    options.model = facts.model;
    ASSIGN_OR_RETURN(const auto address, http::Resolve(options.address.endpoint));
    ASSIGN_OR_RETURN(auto thread, http::IoThread::Start({.name = "chat"}));
    auto partner =
        std::unique_ptr<RemotePartner>(new RemotePartner(std::move(options), std::move(thread)));
    partner->RunOnThread([raw = partner.get(), &address] {
      raw->client_ = std::make_unique<http::Client>(
          raw->thread_->loop(), raw->options_.address.endpoint, address, http::ClientOptions{});
    });
    return std::unique_ptr<ChatPartner>(std::move(partner));
  }

  ~RemotePartner() override {
    RunOnThread([this] { client_.reset(); });
  }

  Result<AnswerStats> Reply(const Conversation& conversation,
                            const std::function<void(std::string_view)>& on_text) override {
    auto mailbox = std::make_shared<Mailbox>();
    RunOnThread([&] { Send(conversation, mailbox); });
    SteadyClock clock;
    int64_t first_ns = 0;
    for (;;) {
      std::unique_lock lock(mailbox->mutex);
      mailbox->changed.wait(lock, [&] { return mailbox->end || !mailbox->text.empty(); });
      const std::string text = std::exchange(mailbox->text, {});
      const std::optional<Status> end = mailbox->end;
      AnswerStats stats = mailbox->stats;
      lock.unlock();
      if (!text.empty()) {
        if (first_ns == 0) first_ns = clock.NowNs();
        on_text(text);
      }
      if (!end) continue;
      if (!end->ok()) return *end;
      const double seconds = static_cast<double>(clock.NowNs() - first_ns) * 1e-9;
      if (stats.completion_tokens > 1) stats.tokens_per_s = (stats.completion_tokens - 1) / seconds;
      return stats;
    }
  }

  void Stop() override {
    thread_->TryPost([this] {
      if (!current_) return;
      client_->Cancel(request_id_);
      current_->End(Status(ErrorCode::kCancelled, "stopped"));
    });
  }

 private:
  RemotePartner(RemotePartnerOptions options, std::unique_ptr<http::IoThread> thread)
      : options_(std::move(options)), thread_(std::move(thread)) {}

  void RunOnThread(const std::function<void()>& body) {
    std::promise<void> done;
    if (!thread_->TryPost([&] {
          body();
          done.set_value();
        })) {
      return;
    }
    done.get_future().wait();
  }

  // On the client thread.
  void Send(const Conversation& conversation, std::shared_ptr<Mailbox> mailbox) {
    current_ = mailbox;
    auto reader = std::make_shared<AnswerReader>(std::move(mailbox));
    request_id_ =
        client_->Fetch(MakeRequest(conversation),
                       {.on_head = [reader](int status, http::HeaderView) { reader->Head(status); },
                        .on_data = [reader](std::string_view bytes) { reader->Data(bytes); },
                        .on_done = [reader](const Status& status) { reader->Done(status); }});
  }

  http::ClientRequest MakeRequest(const Conversation& conversation) const {
    http::ClientRequest request;
    request.method = "POST";
    request.target = options_.address.base_path + "/v1/chat/completions";
    request.headers = {{"Content-Type", "application/json"}};
    if (!options_.api_key.empty()) {
      request.headers.emplace_back("Authorization", "Bearer " + options_.api_key);
    }
    const ChatSampling& sampling = options_.sampling;
    JsonWriter json(request.body);
    json.BeginObject();
    json.Field("model", options_.model);
    json.Key("messages");
    json.BeginArray();
    for (const text::ChatMessage& message : conversation) {
      json.BeginObject();
      json.Field("role", message.role);
      json.Field("content", message.content);
      json.EndObject();
    }
    json.EndArray();
    if (sampling.temperature) json.Field("temperature", *sampling.temperature);
    if (sampling.top_p) json.Field("top_p", *sampling.top_p);
    if (sampling.max_tokens) json.Field("max_completion_tokens", *sampling.max_tokens);
    if (sampling.seed) json.Field("seed", *sampling.seed);
    json.Field("stream", true);
    json.Key("stream_options");
    json.BeginObject();
    json.Field("include_usage", true);
    json.EndObject();
    json.EndObject();
    return request;
  }

  const RemotePartnerOptions options_;
  std::unique_ptr<http::IoThread> thread_;
  // Owner: the client thread.
  std::unique_ptr<http::Client> client_;
  std::shared_ptr<Mailbox> current_;
  http::Client::RequestId request_id_ = 0;
};

}  // namespace

Result<std::unique_ptr<ChatPartner>> MakeRemotePartner(const RemotePartnerOptions& options) {
  return RemotePartner::Create(options);
}

}  // namespace hayate::app
