// Anthropic's /v1/messages on the wire. Events of one stream, in order:
//
//   message_start, ping
//   for each block:  content_block_start, content_block_delta …, content_block_stop
//   message_delta, message_stop

#include <fmt/format.h>
#include <simdjson.h>

#include <utility>

#include "api/block_formatter.h"
#include "api/error_table.h"
#include "base/json_writer.h"
#include "http/sse.h"

namespace hayate::api {
namespace {

using text::AnswerPart;

class MessagesFormatter final : public BlockFormatter {
 public:
  using BlockFormatter::BlockFormatter;

  void Open(const ChoiceView& view, std::string& out) override {
    const Usage usage{.prompt_tokens = view.choice->prompt_tokens(),
                      .cached_tokens = view.choice->cached_tokens()};
    Event(out, "message_start", [&](JsonWriter& json) {
      json.Key("message");
      WriteMessage(json, usage, false);
    });
    Event(out, "ping", [](JsonWriter&) {});
  }

  void Close(const Usage& usage, std::string& out) override {
    Event(out, "message_delta", [&](JsonWriter& json) {
      json.Key("delta");
      json.BeginObject();
      WriteStop(json);
      json.EndObject();
      json.Key("usage");
      WriteUsage(json, usage);
    });
    Event(out, "message_stop", [](JsonWriter&) {});
  }

  std::string Render(const std::vector<ChoiceView>&, const Usage& usage) override {
    std::string out;
    JsonWriter json(out);
    WriteMessage(json, usage, true);
    return out;
  }

  void Fail(const Status& status, std::string& out) override {
    http::AppendSseEvent(out, "error", ErrorBody(status, ErrorShape::kAnthropic));
  }

 private:
  void BeginBlock(size_t index, const AnswerBlock& block, std::string& out) override {
    Event(out, "content_block_start", [&](JsonWriter& json) {
      json.Field("index", static_cast<int64_t>(index));
      json.Key("content_block");
      WriteBlock(json, block, false);
    });
  }

  void ExtendBlock(size_t index, const AnswerBlock& block, const Piece& piece,
                   std::string& out) override {
    const bool thinking = block.kind == AnswerPart::kReasoning;
    if (thinking && !head().spec->show_reasoning) return;
    BlockDelta(out, index, [&](JsonWriter& json) {
      const bool call = block.kind == AnswerPart::kCallName;
      json.Field("type", call ? "input_json_delta" : thinking ? "thinking_delta" : "text_delta");
      json.Field(call ? "partial_json" : thinking ? "thinking" : "text", piece.text);
    });
  }

  void EndBlock(size_t index, const AnswerBlock& block, std::string& out) override {
    if (block.kind == AnswerPart::kReasoning) {
      BlockDelta(out, index, [](JsonWriter& json) {
        json.Field("type", "signature_delta");
        json.Field("signature", "");
      });
    }
    Event(out, "content_block_stop",
          [&](JsonWriter& json) { json.Field("index", static_cast<int64_t>(index)); });
  }

  // As it begins, or whole.
  void WriteBlock(JsonWriter& json, const AnswerBlock& block, bool whole) {
    const std::string_view text = whole ? std::string_view(block.text) : std::string_view();
    json.BeginObject();
    switch (block.kind) {
      case AnswerPart::kReasoning:
        json.Field("type", "thinking");
        json.Field("thinking", head().spec->show_reasoning ? text : "");
        json.Field("signature", "");
        break;
      case AnswerPart::kContent:
        json.Field("type", "text");
        json.Field("text", text);
        break;
      case AnswerPart::kCallName:
      case AnswerPart::kCallArguments:
        json.Field("type", "tool_use");
        json.Field("id", fmt::format("toolu_{:016x}{:08x}", head().call_seed, block.call));
        json.Field("name", block.name);
        json.Key("input");
        json.Raw(whole ? InputOf(block) : "{}");
        break;
    }
    json.EndObject();
  }

  // Arguments that were cut off are no JSON: they show in a stream alone.
  static std::string InputOf(const AnswerBlock& block) {
    simdjson::dom::parser parser;
    const simdjson::padded_string text(block.text);
    simdjson::dom::object object;
    if (parser.parse(text).get(object) != simdjson::SUCCESS) return "{}";
    return simdjson::minify(object);
  }

  void WriteMessage(JsonWriter& json, const Usage& usage, bool whole) {
    json.BeginObject();
    json.Field("id", head().id);
    json.Field("type", "message");
    json.Field("role", "assistant");
    json.Field("model", head().model->name);
    json.Key("content");
    json.BeginArray();
    if (whole) {
      for (const AnswerBlock& block : blocks()) WriteBlock(json, block, true);
    }
    json.EndArray();
    if (whole) {
      WriteStop(json);
    } else {
      json.NullField("stop_reason");
      json.NullField("stop_sequence");
    }
    json.Key("usage");
    WriteUsage(json, usage);
    json.EndObject();
  }

  void WriteStop(JsonWriter& json) {
    const auto* stop = std::get_if<std::string>(&end().matched_stop);
    std::string_view reason = "end_turn";
    if (end().reason == FinishReason::kLength) {
      reason = "max_tokens";
    } else if (stop != nullptr) {
      reason = "stop_sequence";
    } else if (end().called_tools) {
      reason = "tool_use";
    }
    json.Field("stop_reason", reason);
    json.Key("stop_sequence");
    stop != nullptr ? json.String(*stop) : json.Null();
  }

  // Input tokens are those that the prefix cache did not serve.
  void WriteUsage(JsonWriter& json, const Usage& usage) {
    const int64_t cached = head().model->report_cached_tokens ? usage.cached_tokens : 0;
    json.BeginObject();
    json.Field("input_tokens", usage.prompt_tokens - cached);
    json.Field("cache_creation_input_tokens", 0);
    json.Field("cache_read_input_tokens", cached);
    json.Field("output_tokens", usage.completion_tokens);
    json.EndObject();
  }

  template <typename WriteDelta>
  void BlockDelta(std::string& out, size_t index, WriteDelta write_delta) {
    Event(out, "content_block_delta", [&](JsonWriter& json) {
      json.Field("index", static_cast<int64_t>(index));
      json.Key("delta");
      json.BeginObject();
      write_delta(json);
      json.EndObject();
    });
  }

  template <typename WriteFields>
  void Event(std::string& out, std::string_view type, WriteFields write_fields) {
    scratch_.clear();
    JsonWriter json(scratch_);
    json.BeginObject();
    json.Field("type", type);
    write_fields(json);
    json.EndObject();
    http::AppendSseEvent(out, type, scratch_);
  }

  std::string scratch_;
};

}  // namespace

std::unique_ptr<Formatter> MakeMessagesFormatter(const AnswerHead& head) {
  return std::make_unique<MessagesFormatter>(head);
}

}  // namespace hayate::api
