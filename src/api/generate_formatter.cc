// SGLang's /generate on the wire. Streamed events hold the whole answer so far, or with
// StreamDefaults::incremental what is new.

#include <utility>

#include "api/answer_text.h"
#include "api/formatter.h"
#include "http/sse.h"

namespace hayate::api {
namespace {

class GenerateFormatter final : public Formatter {
 public:
  explicit GenerateFormatter(const AnswerHead& head) : head_(head) {}

  void Open(const ChoiceView&, std::string&) override {}

  void Delta(const ChoiceView& view, const ChoiceDelta& delta, const Usage&,
             std::string& out) override {
    const bool speaks = !delta.text.empty() || !delta.tokens.empty() || delta.end;
    Gather(view, delta);
    if (!speaks) return;
    scratch_.clear();
    JsonWriter json(scratch_);
    WriteAnswer(json, view, delta.end.has_value());
    http::AppendSseEvent(out, scratch_);
    if (head_.model->stream.incremental) gathered_[view.index] = {};
  }

  void Close(const Usage&, std::string& out) override { out += http::kSseDone; }

  void Gather(const ChoiceView& view, ChoiceDelta delta) override {
    if (gathered_.size() <= view.index) gathered_.resize(view.index + 1);
    gathered_[view.index].Append(std::move(delta));
  }

  std::string Render(const std::vector<ChoiceView>& views, const Usage&) override {
    std::string out;
    JsonWriter json(out);
    const bool list = head_.spec->batched || views.size() > 1;
    if (list) json.BeginArray();
    for (const ChoiceView& view : views) WriteAnswer(json, view, true);
    if (list) json.EndArray();
    return out;
  }

 private:
  void WriteAnswer(JsonWriter& json, const ChoiceView& view, bool ended) {
    const ChoiceDelta& choice = gathered_[view.index];
    json.BeginObject();
    json.Field("text", choice.text);
    json.Key("output_ids");
    json.BeginArray();
    for (const TokenId token : choice.tokens) json.Int(token);
    json.EndArray();
    json.Field("index", static_cast<int64_t>(view.index));
    json.Key("meta_info");
    json.BeginObject();
    json.Field("id", RequestIdOf(view.index));
    json.Key("finish_reason");
    ended ? WriteFinish(json, *choice.end, *view.choice) : json.Null();
    json.Field("prompt_tokens", view.choice->prompt_tokens());
    json.Field("completion_tokens", view.choice->completion_tokens());
    json.Field("cached_tokens", view.choice->cached_tokens());
    WriteDraftCounts(json, *view.choice);
    json.Field("weight_version", head_.model->weights->version());
    if (head_.spec->logprobs.enabled) WriteLogprobs(json, view, choice);
    json.EndObject();
    json.EndObject();
  }

  void WriteDraftCounts(JsonWriter& json, const Choice& choice) {
    const Choice::DraftCounts& counts = choice.draft_counts();
    if (counts.num_verifies == 0) return;
    json.Field("spec_verify_ct", counts.num_verifies);
    json.Field("spec_accept_length", 1.0 + static_cast<double>(counts.num_accepted) /
                                               static_cast<double>(counts.num_verifies));
    json.Field("spec_accept_rate",
               static_cast<double>(counts.num_accepted) / static_cast<double>(counts.num_drafts));
    json.Field("spec_accept_token_num", counts.num_accepted);
    json.Field("spec_draft_token_num", counts.num_drafts);
  }

  std::string RequestIdOf(size_t index) const {
    const GenerationSpec& spec = *head_.spec;
    if (spec.HasNamePerPrompt()) return spec.NameOfPrompt(index / static_cast<size_t>(spec.n));
    return head_.id + (index > 0 ? "_" + std::to_string(index) : "");
  }

  void WriteFinish(JsonWriter& json, const ChoiceEnd& end, const Choice& choice) {
    json.BeginObject();
    json.Field("type", FinishName(end.reason));
    switch (end.reason) {
      case FinishReason::kStop:
        json.Key("matched");
        WriteMatchedStop(json, end);
        break;
      case FinishReason::kLength:
        json.Field("length", choice.completion_tokens());
        break;
      case FinishReason::kAbort:
        json.Field("message", end.status.message());
        break;
    }
    json.EndObject();
  }

  void WriteLogprobs(JsonWriter& json, const ChoiceView& view, const ChoiceDelta& choice) {
    std::vector<TokenLogprob>& prompt = view.choice->prompt_logprobs();
    json.Key("input_token_logprobs");
    json.BeginArray();
    if (head_.spec->logprobs.prompt_start == 0)
      WriteTuple(json, std::nullopt, view.prompt->front());
    for (const TokenLogprob& entry : prompt) WriteTuple(json, entry.logprob, entry.token);
    json.EndArray();
    json.Key("output_token_logprobs");
    json.BeginArray();
    for (const TokenLogprob& entry : choice.logprobs) WriteTuple(json, entry.logprob, entry.token);
    json.EndArray();
    if (head_.spec->logprobs.num_top > 0) {
      WriteLists(json, "input_top_logprobs", prompt, &TokenLogprob::top, Place::kPrompt);
      WriteLists(json, "output_top_logprobs", choice.logprobs, &TokenLogprob::top, Place::kOutput);
    }
    if (!head_.spec->logprobs.token_ids.empty()) {
      WriteLists(json, "input_token_ids_logprobs", prompt, &TokenLogprob::asked, Place::kPrompt);
      WriteLists(json, "output_token_ids_logprobs", choice.logprobs, &TokenLogprob::asked,
                 Place::kOutput);
    }
  }

  // [logprob, token id, text or null].
  void WriteTuple(JsonWriter& json, std::optional<float> logprob, TokenId token) {
    json.BeginArray();
    logprob ? json.Float(*logprob) : json.Null();
    json.Int(token);
    head_.spec->return_text_in_logprobs ? json.String(TokenText(*head_.model, token)) : json.Null();
    json.EndArray();
  }

  // Of each position a list of tuples; nothing predicts the first token of a prompt.
  enum class Place { kPrompt, kOutput };
  void WriteLists(JsonWriter& json, std::string_view name, const std::vector<TokenLogprob>& entries,
                  std::vector<std::pair<TokenId, float>> TokenLogprob::*list, Place place) {
    json.Key(name);
    json.BeginArray();
    if (place == Place::kPrompt && head_.spec->logprobs.prompt_start == 0) json.Null();
    for (const TokenLogprob& entry : entries) {
      json.BeginArray();
      for (const auto& [token, logprob] : entry.*list) WriteTuple(json, logprob, token);
      json.EndArray();
    }
    json.EndArray();
  }

  AnswerHead head_;
  std::vector<ChoiceDelta> gathered_;  // by choice index
  std::string scratch_;
};

}  // namespace

std::unique_ptr<Formatter> MakeGenerateFormatter(const AnswerHead& head) {
  return std::make_unique<GenerateFormatter>(head);
}

}  // namespace hayate::api
