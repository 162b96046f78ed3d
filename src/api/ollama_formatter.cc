// Ollama's /api/chat and /api/generate on the wire: one JSON object a line. The last one has
// "done": true, the counts and the times.

#include <fmt/format.h>
#include <simdjson.h>

#include <chrono>
#include <ctime>
#include <utility>

#include "api/answer_text.h"
#include "api/error_table.h"
#include "api/formatter.h"
#include "base/clock.h"

namespace hayate::api {
namespace {

using text::AnswerEvent;
using text::AnswerPart;

}  // namespace

std::string OllamaTimeNow() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  const std::time_t seconds = micros / 1'000'000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     micros % 1'000'000);
}

namespace {

class OllamaFormatter final : public Formatter {
 public:
  explicit OllamaFormatter(const AnswerHead& head)
      : head_(head),
        chat_(head.spec->dialect == Dialect::kOllamaChat),
        begin_ns_(SteadyClock().NowNs()) {}

  std::string_view stream_type() const override { return "application/x-ndjson"; }

  void Open(const ChoiceView&, std::string&) override {}

  void Delta(const ChoiceView& view, const ChoiceDelta& delta, const Usage&,
             std::string& out) override {
    NoteTime(delta);
    if (!view.choice->divides()) {
      if (!delta.text.empty()) TextLine(out, chat_ ? "content" : "response", delta.text);
    } else {
      for (const AnswerEvent& event : delta.parts) PartLine(out, event);
    }
    if (delta.end) {
      CallLine(out);
      end_ = *delta.end;
    }
  }

  void Close(const Usage& usage, std::string& out) override {
    Line(out, [&](JsonWriter& json) {
      if (chat_) {
        BeginMessage(json);
        json.Field("content", "");
        json.EndObject();
      } else {
        json.Field("response", "");
      }
      WriteEnd(json, end_, usage);
    });
  }

  void Gather(const ChoiceView&, ChoiceDelta delta) override {
    NoteTime(delta);
    gathered_.Append(std::move(delta));
  }

  std::string Render(const std::vector<ChoiceView>& views, const Usage& usage) override {
    std::string out;
    Line(out, [&](JsonWriter& json) {
      WriteWhole(json, views.front().choice->divides());
      WriteEnd(json, *gathered_.end, usage);
    });
    out.pop_back();
    return out;
  }

  void Fail(const Status& status, std::string& out) override {
    out += ErrorBody(status, ErrorShape::kOllama);
    out += '\n';
  }

 private:
  void NoteTime(const ChoiceDelta& delta) {
    if (first_ns_ == 0 && !delta.tokens.empty()) first_ns_ = SteadyClock().NowNs();
  }

  template <typename WriteFields>
  void Line(std::string& out, WriteFields write_fields) {
    JsonWriter json(out);
    json.BeginObject();
    json.Field("model", head_.spec->model.empty() ? head_.model->name : head_.spec->model);
    json.Field("created_at", OllamaTimeNow());
    write_fields(json);
    json.EndObject();
    out += '\n';
  }

  void BeginMessage(JsonWriter& json) {
    json.Key("message");
    json.BeginObject();
    json.Field("role", "assistant");
  }

  void TextLine(std::string& out, std::string_view field, std::string_view text) {
    Line(out, [&](JsonWriter& json) {
      if (chat_) {
        BeginMessage(json);
        if (field != "content") json.Field("content", "");
        json.Field(field, text);
        json.EndObject();
      } else {
        if (field != "response") json.Field("response", "");
        json.Field(field, text);
      }
      json.Field("done", false);
    });
  }

  // A call goes out whole: its arguments are an object.
  void PartLine(std::string& out, const AnswerEvent& event) {
    switch (event.part) {
      case AnswerPart::kReasoning:
        return TextLine(out, "thinking", event.text);
      case AnswerPart::kContent:
        CallLine(out);
        return TextLine(out, chat_ ? "content" : "response", event.text);
      case AnswerPart::kCallName:
        CallLine(out);
        call_ = {event.text, ""};
        return;
      case AnswerPart::kCallArguments:
        call_->arguments += event.text;
        return;
    }
  }

  void CallLine(std::string& out) {
    if (!call_) return;
    Line(out, [&](JsonWriter& json) {
      BeginMessage(json);
      json.Field("content", "");
      WriteCalls(json, {&*call_, 1});
      json.EndObject();
      json.Field("done", false);
    });
    call_.reset();
  }

  struct Call {
    std::string name;
    std::string arguments;
  };

  static void WriteCalls(JsonWriter& json, std::span<const Call> calls) {
    json.Key("tool_calls");
    json.BeginArray();
    for (const Call& call : calls) {
      json.BeginObject();
      json.Key("function");
      json.BeginObject();
      json.Field("name", call.name);
      json.Key("arguments");
      json.Raw(ArgumentsOf(call));
      json.EndObject();
      json.EndObject();
    }
    json.EndArray();
  }

  // Arguments that were cut off are no object.
  static std::string ArgumentsOf(const Call& call) {
    simdjson::dom::parser parser;
    const simdjson::padded_string text(call.arguments);
    simdjson::dom::object object;
    if (parser.parse(text).get(object) != simdjson::SUCCESS) return "{}";
    return simdjson::minify(object);
  }

  void WriteWhole(JsonWriter& json, bool divides) {
    std::string content, thinking;
    std::vector<Call> calls;
    for (const AnswerEvent& event : gathered_.parts) {
      if (event.part == AnswerPart::kContent) content += event.text;
      if (event.part == AnswerPart::kReasoning) thinking += event.text;
      if (event.part == AnswerPart::kCallName) calls.push_back({event.text, ""});
      if (event.part == AnswerPart::kCallArguments) calls.back().arguments += event.text;
    }
    if (!divides) content = gathered_.text;
    if (chat_) BeginMessage(json);
    json.Field(chat_ ? "content" : "response", content);
    if (!thinking.empty()) json.Field("thinking", thinking);
    if (!calls.empty()) WriteCalls(json, calls);
    if (chat_) json.EndObject();
  }

  void WriteEnd(JsonWriter& json, const ChoiceEnd& end, const Usage& usage) {
    const int64_t now_ns = SteadyClock().NowNs();
    const int64_t first_ns = first_ns_ == 0 ? now_ns : first_ns_;
    json.Field("done", true);
    json.Field("done_reason", FinishName(end.reason));
    json.Field("total_duration", now_ns - begin_ns_);
    json.Field("load_duration", 0);
    json.Field("prompt_eval_count", usage.prompt_tokens);
    json.Field("prompt_eval_duration", first_ns - begin_ns_);
    json.Field("eval_count", usage.completion_tokens);
    json.Field("eval_duration", now_ns - first_ns);
  }

  AnswerHead head_;
  const bool chat_;
  const int64_t begin_ns_;
  int64_t first_ns_ = 0;      // of the first token
  std::optional<Call> call_;  // whose arguments still come
  ChoiceEnd end_;
  ChoiceDelta gathered_;
};

}  // namespace

std::unique_ptr<Formatter> MakeOllamaFormatter(const AnswerHead& head) {
  return std::make_unique<OllamaFormatter>(head);
}

}  // namespace hayate::api
