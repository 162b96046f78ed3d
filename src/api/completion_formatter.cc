// /v1/completions on the wire.

#include <utility>

#include "api/answer_text.h"
#include "api/formatter.h"
#include "http/sse.h"

namespace hayate::api {
namespace {

class CompletionFormatter final : public Formatter {
 public:
  explicit CompletionFormatter(const AnswerHead& head) : head_(head) {}

  void Open(const ChoiceView&, std::string&) override {}

  void Delta(const ChoiceView& view, const ChoiceDelta& delta, const Usage& usage,
             std::string& out) override {
    State& state = StateOf(view.index);
    std::string text;
    std::vector<TokenLogprob> logprobs;
    const bool echoes = head_.spec->echo && !state.echoed;
    if (echoes) {
      // Prompt scores are complete once the first token or the end is there.
      if (delta.tokens.empty() && !delta.end) return;
      state.echoed = true;
      text = EchoText(view);
      logprobs = view.choice->prompt_logprobs();
    }
    text += delta.text;
    logprobs.insert(logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
    if (text.empty() && logprobs.empty() && !delta.end) return;
    Event(out, head_.spec->continuous_usage ? &usage : nullptr, [&](JsonWriter& json) {
      WriteChoice(json, view, text, logprobs, echoes, state, delta.end ? &*delta.end : nullptr);
    });
  }

  void Close(const Usage& usage, std::string& out) override {
    if (head_.spec->include_usage) {
      Event(out, &usage, [](JsonWriter&) {});
    }
    out += http::kSseDone;
  }

  void Gather(const ChoiceView& view, ChoiceDelta delta) override {
    StateOf(view.index).gathered.Append(std::move(delta));
  }

  std::string Render(const std::vector<ChoiceView>& views, const Usage& usage) override {
    std::string out;
    JsonWriter json(out);
    json.BeginObject();
    WriteHead(json);
    json.Key("choices");
    json.BeginArray();
    for (const ChoiceView& view : views) {
      State& state = StateOf(view.index);
      const ChoiceDelta& gathered = state.gathered;
      std::string text = head_.spec->echo ? EchoText(view) : "";
      std::vector<TokenLogprob> logprobs;
      if (head_.spec->echo) logprobs = view.choice->prompt_logprobs();
      text += gathered.text;
      logprobs.insert(logprobs.end(), gathered.logprobs.begin(), gathered.logprobs.end());
      WriteChoice(json, view, text, logprobs, head_.spec->echo, state, &*gathered.end);
    }
    json.EndArray();
    json.Key("usage");
    WriteUsage(json, usage, *head_.model);
    json.EndObject();
    return out;
  }

 private:
  struct State {
    ChoiceDelta gathered;
    bool echoed = false;
    int64_t text_offset = 0;  // characters passed on, for text_offset
  };
  State& StateOf(size_t index) {
    if (states_.size() <= index) states_.resize(index + 1);
    return states_[index];
  }

  std::string EchoText(const ChoiceView& view) const {
    // A text comes back as it was sent, whatever its tokens would decode to.
    const size_t prompt = view.index / static_cast<size_t>(head_.spec->n);
    const auto* text = std::get_if<std::string>(&head_.spec->prompts[prompt]);
    if (text != nullptr) return *text;
    return head_.model->tokenizer->Decode(*view.prompt, text::SkipSpecial::kNo);
  }

  void WriteHead(JsonWriter& json) {
    json.Field("id", head_.id);
    json.Field("object", "text_completion");
    json.Field("created", head_.created);
    json.Field("model", head_.model->name);
  }

  template <typename WriteChoices>
  void Event(std::string& out, const Usage* usage, WriteChoices write_choices) {
    scratch_.clear();
    JsonWriter json(scratch_);
    json.BeginObject();
    WriteHead(json);
    json.Key("choices");
    json.BeginArray();
    write_choices(json);
    json.EndArray();
    EndEvent(json, head_, usage);
    http::AppendSseEvent(out, scratch_);
  }

  void WriteChoice(JsonWriter& json, const ChoiceView& view, const std::string& text,
                   const std::vector<TokenLogprob>& logprobs, bool with_prompt, State& state,
                   const ChoiceEnd* end) {
    json.BeginObject();
    json.Field("index", static_cast<int64_t>(view.shown));
    json.Field("text", text);
    json.Key("logprobs");
    if (head_.spec->logprobs.enabled) {
      WriteLogprobs(json, view, logprobs, with_prompt, state);
    } else {
      json.Null();
    }
    json.Key("finish_reason");
    if (end == nullptr) {
      json.Null();
    } else {
      json.String(FinishName(end->reason));
      json.Key("matched_stop");
      WriteMatchedStop(json, *end);
      WritePromptLogprobs(json, *head_.spec, *head_.model, *view.choice);
    }
    json.EndObject();
  }

  // The first prompt token has no score: nothing stands before it.
  void WriteLogprobs(JsonWriter& json, const ChoiceView& view,
                     const std::vector<TokenLogprob>& logprobs, bool with_prompt, State& state) {
    std::string texts, scores, tops, offsets;
    JsonWriter text_json(texts), score_json(scores), top_json(tops), offset_json(offsets);
    for (JsonWriter* list : {&text_json, &score_json, &top_json, &offset_json}) list->BeginArray();
    const auto add = [&](TokenId token, const TokenLogprob* entry) {
      const std::string token_text = TokenText(*head_.model, token);
      text_json.String(token_text);
      offset_json.Int(state.text_offset);
      for (const char byte : token_text) state.text_offset += (byte & 0xC0) != 0x80;
      if (entry == nullptr) {
        score_json.Null();
        top_json.Null();
        return;
      }
      score_json.Float(entry->logprob);
      WriteTop(top_json, *entry);
    };
    if (with_prompt) add(view.prompt->front(), nullptr);
    for (const TokenLogprob& entry : logprobs) add(entry.token, &entry);
    for (JsonWriter* list : {&text_json, &score_json, &top_json, &offset_json}) list->EndArray();
    json.BeginObject();
    json.Key("tokens"), json.Raw(texts);
    json.Key("token_logprobs"), json.Raw(scores);
    json.Key("top_logprobs"), json.Raw(tops);
    json.Key("text_offset"), json.Raw(offsets);
    json.EndObject();
  }

  void WriteTop(JsonWriter& json, const TokenLogprob& entry) {
    json.BeginObject();
    std::vector<std::string> written;
    for (const auto& [token, logprob] : entry.top) {
      std::string key = TokenText(*head_.model, token);
      // Two tokens may look the same (parts of characters): both stay, told apart by their bytes.
      for (const std::string& other : written) {
        if (other == key) {
          key = "bytes:";
          for (const char byte : head_.model->tokenizer->TokenBytes(token)) {
            constexpr std::string_view kHex = "0123456789abcdef";
            key += "\\x";
            key += kHex[static_cast<unsigned char>(byte) >> 4];
            key += kHex[static_cast<unsigned char>(byte) & 15];
          }
          break;
        }
      }
      json.Key(key);
      json.Float(logprob);
      written.push_back(std::move(key));
    }
    json.EndObject();
  }

  AnswerHead head_;
  std::vector<State> states_;
  std::string scratch_;
};

}  // namespace

std::unique_ptr<Formatter> MakeCompletionFormatter(const AnswerHead& head) {
  return std::make_unique<CompletionFormatter>(head);
}

}  // namespace hayate::api
