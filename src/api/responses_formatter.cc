// /v1/responses on the wire. Events of one stream, in order:
//
//   response.created, response.in_progress
//   for each block:  output_item.added
//                      thinking, text:  content_part.added, …text.delta …, …text.done,
//                                       content_part.done
//                      call:            function_call_arguments.delta …, ….done
//                    output_item.done
//   response.completed, .incomplete or .failed

#include <utility>

#include "api/answer_text.h"
#include "api/block_formatter.h"
#include "api/response_store.h"
#include "api/responses_object.h"
#include "base/clock.h"
#include "http/sse.h"

namespace hayate::api {
namespace {

using text::AnswerPart;

class ResponsesFormatter final : public BlockFormatter {
 public:
  ResponsesFormatter(const AnswerHead& head, ResponseStore* store)
      : BlockFormatter(head), store_(head.spec->response->store ? store : nullptr) {}

  void Open(const ChoiceView&, std::string& out) override {
    NoteProgress();
    const std::string begun = RenderResponse(head(), {.status = "in_progress"});
    for (const char* type : {"response.created", "response.in_progress"}) {
      Event(out, type, [&](JsonWriter& json) {
        json.Key("response");
        json.Raw(begun);
      });
    }
  }

  void Gather(const ChoiceView& view, ChoiceDelta delta) override {
    NoteProgress();
    BlockFormatter::Gather(view, std::move(delta));
  }

  void Close(const Usage& usage, std::string& out) override {
    const std::string_view status = FinalStatus();
    const std::string body = Finish(status, &usage, nullptr);
    const char* type = status == "completed" ? "response.completed" : "response.incomplete";
    Event(out, type, [&](JsonWriter& json) {
      json.Key("response");
      json.Raw(body);
    });
  }

  std::string Render(const std::vector<ChoiceView>&, const Usage& usage) override {
    return Finish(FinalStatus(), &usage, nullptr);
  }

  void Fail(const Status& status, std::string& out) override {
    const std::string body = Finish("failed", nullptr, &status);
    Event(out, "response.failed", [&](JsonWriter& json) {
      json.Key("response");
      json.Raw(body);
    });
  }

 private:
  void BeginBlock(size_t index, const AnswerBlock& block, std::string& out) override {
    Event(out, "response.output_item.added", [&](JsonWriter& json) {
      json.Field("output_index", static_cast<int64_t>(index));
      json.Key("item");
      WriteOutputItem(json, head(), index, block, "in_progress");
    });
    if (block.kind == AnswerPart::kCallName) return;
    Event(out, "response.content_part.added", [&](JsonWriter& json) {
      WritePlace(json, index, block);
      json.Key("part");
      WriteContentPart(json, head(), block, PartState::kBegins);
    });
  }

  void ExtendBlock(size_t index, const AnswerBlock& block, const Piece& piece,
                   std::string& out) override {
    const char* type = block.kind == AnswerPart::kCallName
                           ? "response.function_call_arguments.delta"
                       : block.kind == AnswerPart::kContent ? "response.output_text.delta"
                                                            : "response.reasoning_text.delta";
    Event(out, type, [&](JsonWriter& json) {
      WritePlace(json, index, block);
      json.Field("delta", piece.text);
      if (block.kind != AnswerPart::kContent) return;
      json.Key("logprobs");
      piece.scores != nullptr ? WriteScores(json, *piece.scores, *head().model) : json.Raw("[]");
    });
  }

  void EndBlock(size_t index, const AnswerBlock& block, std::string& out) override {
    if (block.kind == AnswerPart::kCallName) {
      Event(out, "response.function_call_arguments.done", [&](JsonWriter& json) {
        WritePlace(json, index, block);
        json.Field("name", block.name);
        json.Field("arguments", block.text);
      });
    } else {
      const bool content = block.kind == AnswerPart::kContent;
      Event(out, content ? "response.output_text.done" : "response.reasoning_text.done",
            [&](JsonWriter& json) {
              WritePlace(json, index, block);
              json.Field("text", block.text);
              if (!content) return;
              json.Key("logprobs");
              WriteScores(json, block.scores, *head().model);
            });
      Event(out, "response.content_part.done", [&](JsonWriter& json) {
        WritePlace(json, index, block);
        json.Key("part");
        WriteContentPart(json, head(), block, PartState::kWhole);
      });
    }
    Event(out, "response.output_item.done", [&](JsonWriter& json) {
      json.Field("output_index", static_cast<int64_t>(index));
      json.Key("item");
      WriteOutputItem(json, head(), index, block, ItemStatus(index));
    });
  }

  std::string_view ItemStatus(size_t index) const {
    return cut(index) ? "incomplete" : "completed";
  }

  std::string_view FinalStatus() const {
    switch (end().reason) {
      case FinishReason::kStop:
        return "completed";
      case FinishReason::kLength:
        return "incomplete";
      case FinishReason::kAbort:
        return "cancelled";
    }
    return "failed";
  }

  // The response's last form, kept where it is to be.
  std::string Finish(std::string_view status, const Usage* usage, const Status* error) {
    std::vector<std::string> output(blocks().size());
    for (size_t i = 0; i < output.size(); ++i) {
      JsonWriter json(output[i]);
      WriteOutputItem(json, head(), i, blocks()[i], ItemStatus(i));
    }
    std::string body = RenderResponse(head(), {.status = status,
                                               .usage = usage,
                                               .error = error,
                                               .completed_at = UnixSeconds(),
                                               .output = &output});
    const ResponseFields& fields = *head().spec->response;
    if (store_ != nullptr) {
      store_->Finish(head().id, {body, fields.input, std::move(output), fields.owner},
                     fields.background);
    }
    return body;
  }

  // The first token of an answer in the background.
  void NoteProgress() {
    if (noted_ || store_ == nullptr || !head().spec->response->background) return;
    noted_ = true;
    store_->Update(head().id, RenderResponse(head(), {.status = "in_progress"}));
  }

  void WritePlace(JsonWriter& json, size_t index, const AnswerBlock& block) {
    json.Field("item_id", ItemId(head(), index, block));
    json.Field("output_index", static_cast<int64_t>(index));
    if (block.kind != AnswerPart::kCallName) json.Field("content_index", 0);
  }

  template <typename WriteFields>
  void Event(std::string& out, std::string_view type, WriteFields write_fields) {
    scratch_.clear();
    JsonWriter json(scratch_);
    json.BeginObject();
    json.Field("type", type);
    json.Field("sequence_number", sequence_++);
    write_fields(json);
    json.EndObject();
    http::AppendSseEvent(out, type, scratch_);
  }

  ResponseStore* const store_;  // null: the response is not kept
  int64_t sequence_ = 0;
  bool noted_ = false;
  std::string scratch_;
};

}  // namespace

std::unique_ptr<Formatter> MakeResponsesFormatter(const AnswerHead& head, ResponseStore* store) {
  return std::make_unique<ResponsesFormatter>(head, store);
}

}  // namespace hayate::api
