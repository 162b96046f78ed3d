#pragma once
// A dialect's shape on the wire: whole answers and streamed events. One per exchange. Owner: its
// http thread.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/choice.h"
#include "api/generation_spec.h"
#include "api/served_model.h"

namespace hayate::api {

class ResponseStore;

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t reasoning_tokens = 0;  // of the completion tokens
};

// What all of an exchange's events share.
struct AnswerHead {
  std::string id;  // "chatcmpl-…"
  int64_t created = 0;
  uint64_t call_seed = 0;  // random: ids of tool calls are made of it
  const GenerationSpec* spec = nullptr;
  const ServedModel* model = nullptr;
};

// A choice and where it stands: prompt p's choice c has index p × n + c.
struct ChoiceView {
  size_t index = 0;
  size_t shown = 0;  // its index as the client sees it: another one where the best are chosen
  Choice* choice = nullptr;
  const std::vector<TokenId>* prompt = nullptr;  // ids, for echo
};

class Formatter {
 public:
  virtual ~Formatter() = default;

  // The content type of a stream.
  virtual std::string_view stream_type() const;
  // Streaming. Each appends whole events to `out`; nothing when there is nothing to say.
  virtual void Open(const ChoiceView& view, std::string& out) = 0;
  virtual void Delta(const ChoiceView& view, const ChoiceDelta& delta, const Usage& usage,
                     std::string& out) = 0;
  virtual void Close(const Usage& usage, std::string& out) = 0;

  // Not streaming: deltas are gathered, then rendered at once.
  virtual void Gather(const ChoiceView& view, ChoiceDelta delta) = 0;
  virtual std::string Render(const std::vector<ChoiceView>& views, const Usage& usage) = 0;

  // The answer ends with an error before its time; of a stream, `out` gets the last events.
  // OpenAI's envelope and mark of the end, unless a surface has its own.
  virtual void Fail(const Status& status, std::string& out);
};

std::unique_ptr<Formatter> MakeChatFormatter(const AnswerHead& head);
std::unique_ptr<Formatter> MakeCompletionFormatter(const AnswerHead& head);
std::unique_ptr<Formatter> MakeGenerateFormatter(const AnswerHead& head);
// `store` keeps the response once it is over; null: nobody does.
std::unique_ptr<Formatter> MakeResponsesFormatter(const AnswerHead& head, ResponseStore* store);
std::unique_ptr<Formatter> MakeMessagesFormatter(const AnswerHead& head);
std::unique_ptr<Formatter> MakeOllamaFormatter(const AnswerHead& head);
// As Ollama's answers say when they were made: "2026-11-30T11:48:05.123456Z".
std::string OllamaTimeNow();
std::unique_ptr<Formatter> MakeScoreFormatter(const AnswerHead& head);
std::unique_ptr<Formatter> MakeEmbeddingFormatter(const AnswerHead& head);

}  // namespace hayate::api
