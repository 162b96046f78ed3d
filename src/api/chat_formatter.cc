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
    const std::vector<TokenLogprob>* logprobs = &delta.logprobs;
    const auto part = [&](const text::AnswerEvent& event) {
      Event(out, counts, [&](JsonWriter& json) {
        BeginChunkChoice(json, view.index);
        WritePart(json, view.index, event);
        EndChunkChoice(json, logprobs, nullptr);
      });
      logprobs = &none_;  // they belong to the delta, not to each of its parts
    };
    if (view.choice->divides()) {
      for (const text::AnswerEvent& event : delta.parts) part(event);
      // Text that is held back has scores all the same.
      if (delta.parts.empty() && !delta.logprobs.empty()) part({});
    } else if (!delta.text.empty() || !delta.logprobs.empty()) {
      part({text::AnswerPart::kContent, delta.text});
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
    gathered_[view.index].Append(std::move(delta));
  }

  std::string Render(const std::vector<ChoiceView>& views, const Usage& usage) override {
    std::string out;
    JsonWriter json(out);
    json.BeginObject();
    WriteHead(json, "chat.completion");
    json.Key("choices");
    json.BeginArray();
    for (const ChoiceView& view : views) {
      const ChoiceDelta& choice = gathered_[view.index];
      json.BeginObject();
      json.Field("index", static_cast<int64_t>(view.index));
      json.Key("message");
      json.BeginObject();
      json.Field("role", "assistant");
      WriteMessage(json, view, choice);
      json.EndObject();
      WriteLogprobs(json, head_.spec->logprobs.enabled ? &choice.logprobs : nullptr);
      WriteEnd(json, &*choice.end);
      json.EndObject();
    }
    json.EndArray();
    WritePromptLogprobs(json, *head_.spec, *head_.model, *views.front().choice);
    json.Key("usage");
    WriteUsage(json, usage, *head_.model);
    json.EndObject();
    return out;
  }

 private:
  struct Call {
    std::string_view name;
    std::string arguments;
  };

  // The parts of a whole answer; a choice without a parser has content alone.
  void WriteMessage(JsonWriter& json, const ChoiceView& view, const ChoiceDelta& choice) {
    std::string content, reasoning;
    std::vector<Call> calls;
    for (const text::AnswerEvent& event : choice.parts) {
      switch (event.part) {
        case text::AnswerPart::kContent:
          content += event.text;
          break;
        case text::AnswerPart::kReasoning:
          reasoning += event.text;
          break;
        case text::AnswerPart::kCallName:
          calls.push_back({event.text, ""});
          break;
        case text::AnswerPart::kCallArguments:
          calls.back().arguments += event.text;
          break;
      }
    }
    if (!view.choice->divides()) content = choice.text;
    const bool no_content = content.empty() && !choice.parts.empty();
    no_content ? json.NullField("content") : json.Field("content", content);
    reasoning.empty() ? json.NullField("reasoning_content")
                      : json.Field("reasoning_content", reasoning);
    json.Key("tool_calls");
    if (calls.empty()) return json.Null();
    json.BeginArray();
    for (size_t i = 0; i < calls.size(); ++i) {
      json.BeginObject();
      json.Field("id", CallId(head_.call_seed, view.index, static_cast<int32_t>(i)));
      json.Field("type", "function");
      json.Key("function");
      json.BeginObject();
      json.Field("name", calls[i].name);
      json.Field("arguments", calls[i].arguments);
      json.EndObject();
      json.EndObject();
    }
    json.EndArray();
  }

  void WritePart(JsonWriter& json, size_t index, const text::AnswerEvent& event) {
    if (event.part == text::AnswerPart::kContent) return json.Field("content", event.text);
    if (event.part == text::AnswerPart::kReasoning) {
      return json.Field("reasoning_content", event.text);
    }
    const bool begins = event.part == text::AnswerPart::kCallName;
    json.Key("tool_calls");
    json.BeginArray();
    json.BeginObject();
    json.Field("index", event.call);
    if (begins) {
      json.Field("id", CallId(head_.call_seed, index, event.call));
      json.Field("type", "function");
    }
    json.Key("function");
    json.BeginObject();
    if (begins) json.Field("name", event.text);
    json.Field("arguments", begins ? std::string_view() : std::string_view(event.text));
    json.EndObject();
    json.EndObject();
    json.EndArray();
  }

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
    const bool calls = end->reason == FinishReason::kStop && end->called_tools;
    json.String(calls ? "tool_calls" : FinishName(end->reason));
    json.Key("matched_stop");
    WriteMatchedStop(json, *end);
  }

  void WriteLogprobs(JsonWriter& json, const std::vector<TokenLogprob>* logprobs) {
    json.Key("logprobs");
    if (logprobs == nullptr) return json.Null();
    json.BeginObject();
    json.Key("content");
    WriteScores(json, *logprobs, *head_.model);
    json.EndObject();
  }

  AnswerHead head_;
  const std::vector<TokenLogprob> none_;
  std::vector<ChoiceDelta> gathered_;  // by choice index
  std::string scratch_;
};

}  // namespace

std::unique_ptr<Formatter> MakeChatFormatter(const AnswerHead& head) {
  return std::make_unique<ChatFormatter>(head);
}

}  // namespace hayate::api
