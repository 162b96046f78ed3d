// /v1/chat/completions on the wire.

#include <utility>

#include "api/answer_text.h"
#include "api/formatter.h"
#include "http/sse.h"

namespace hayate::api {
namespace {

class ChatFormatter final : public Formatter {
 public:
  explicit ChatFormatter(const AnswerHead& head) : head_(head) {}

  void Open(const ChoiceView& view, std::string& out) override {
    Event(out, nullptr, [&](JsonWriter& json) {
      BeginChunkChoice(json, view.index);
      json.Field("role", "assistant");
      json.Field("content", "");
      EndChunkChoice(json, nullptr, nullptr);
    });
  }

  void Delta(const ChoiceView& view, const ChoiceDelta& delta, const Usage& usage,
             std::string& out) override {
    const Usage* counts = head_.spec->continuous_usage ? &usage : nullptr;
    if (!delta.text.empty() || !delta.logprobs.empty()) {
      Event(out, counts, [&](JsonWriter& json) {
        BeginChunkChoice(json, view.index);
        json.Field("content", delta.text);
        EndChunkChoice(json, &delta.logprobs, nullptr);
      });
    }
    if (!delta.end) return;
    Event(out, counts, [&](JsonWriter& json) {
      BeginChunkChoice(json, view.index);
      EndChunkChoice(json, nullptr, &*delta.end);
    });
  }

  void Close(const Usage& usage, std::string& out) override {
    if (head_.spec->include_usage) {
      Event(out, &usage, [](JsonWriter&) {});
    }
    out += http::kSseDone;
  }

  void Gather(const ChoiceView& view, ChoiceDelta delta) override {
    if (gathered_.size() <= view.index) gathered_.resize(view.index + 1);
    gathered_[view.index].Add(std::move(delta));
  }

  std::string Render(const std::vector<ChoiceView>& views, const Usage& usage) override {
    std::string out;
    JsonWriter json(out);
    json.BeginObject();
    WriteHead(json, "chat.completion");
    json.Key("choices");
    json.BeginArray();
    for (const ChoiceView& view : views) {
      const GatheredChoice& choice = gathered_[view.index];
      json.BeginObject();
      json.Field("index", static_cast<int64_t>(view.index));
      json.Key("message");
      json.BeginObject();
      json.Field("role", "assistant");
      json.Field("content", choice.text);
      json.NullField("reasoning_content");
      json.NullField("tool_calls");
      json.EndObject();
      WriteLogprobs(json, head_.spec->logprobs.enabled ? &choice.logprobs : nullptr);
      WriteEnd(json, &choice.end);
      json.EndObject();
    }
    json.EndArray();
    json.Key("usage");
    WriteUsage(json, usage, *head_.model);
    json.EndObject();
    return out;
  }

 private:
  void WriteHead(JsonWriter& json, std::string_view object) {
    json.Field("id", head_.id);
    json.Field("object", object);
    json.Field("created", head_.created);
    json.Field("model", head_.model->name);
  }

  // One event; `usage` null writes null where the stream carries counts at its end.
  template <typename WriteChoices>
  void Event(std::string& out, const Usage* usage, WriteChoices write_choices) {
    scratch_.clear();
    JsonWriter json(scratch_);
    json.BeginObject();
    WriteHead(json, "chat.completion.chunk");
    json.Key("choices");
    json.BeginArray();
    write_choices(json);
    json.EndArray();
    EndEvent(json, head_, usage);
    http::AppendSseEvent(out, scratch_);
  }

  void BeginChunkChoice(JsonWriter& json, size_t index) {
    json.BeginObject();
    json.Field("index", static_cast<int64_t>(index));
    json.Key("delta");
    json.BeginObject();
  }

  void EndChunkChoice(JsonWriter& json, const std::vector<TokenLogprob>* logprobs,
                      const ChoiceEnd* end) {
    json.EndObject();
    WriteLogprobs(json, head_.spec->logprobs.enabled ? logprobs : nullptr);
    WriteEnd(json, end);
    json.EndObject();
  }

  void WriteEnd(JsonWriter& json, const ChoiceEnd* end) {
    json.Key("finish_reason");
    if (end == nullptr) {
      json.Null();
      return;
    }
    json.String(FinishName(end->reason));
    json.Key("matched_stop");
    WriteMatchedStop(json, *end);
  }

  void WriteLogprobs(JsonWriter& json, const std::vector<TokenLogprob>* logprobs) {
    json.Key("logprobs");
    if (logprobs == nullptr) return json.Null();
    json.BeginObject();
    json.Key("content");
    json.BeginArray();
    for (const TokenLogprob& entry : *logprobs) {
      json.BeginObject();
      WriteToken(json, entry.token, entry.logprob);
      json.Key("top_logprobs");
      json.BeginArray();
      for (const auto& [token, logprob] : entry.top) {
        json.BeginObject();
        WriteToken(json, token, logprob);
        json.EndObject();
      }
      json.EndArray();
      json.EndObject();
    }
    json.EndArray();
    json.EndObject();
  }

  void WriteToken(JsonWriter& json, TokenId token, float logprob) {
    json.Field("token", TokenText(*head_.model, token));
    json.Key("logprob");
    json.Float(logprob);
    json.Key("bytes");
    json.BeginArray();
    for (const char byte : head_.model->tokenizer->TokenBytes(token)) {
      json.Int(static_cast<unsigned char>(byte));
    }
    json.EndArray();
  }

  AnswerHead head_;
  std::vector<GatheredChoice> gathered_;  // by choice index
  std::string scratch_;
};

}  // namespace

std::unique_ptr<Formatter> MakeChatFormatter(const AnswerHead& head) {
  return std::make_unique<ChatFormatter>(head);
}

}  // namespace hayate::api
