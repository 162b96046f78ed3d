#pragma once
// Answers from a model in this process, one at a time: for generate and for chat without a server.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "app/engine_stack.h"
#include "app/model_options.h"
#include "base/status.h"
#include "core/sampling_params.h"
#include "text/chat_template.h"

namespace hayate::app {

struct AnswerStats {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t completion_tokens = 0;
  double tokens_per_s = 0.0;  // from the first token to the last
};

// Oldest first.
using Conversation = std::vector<text::ChatMessage>;

class LocalAnswer {
 public:
  static Result<std::unique_ptr<LocalAnswer>> Create(const ModelOptions& model);
  ~LocalAnswer();

  // The prompt of a conversation that the assistant is to continue.
  Result<std::string> RenderChat(const Conversation& conversation) const;
  // Blocks until the answer is complete; `on_text` gets it piece by piece on the calling thread.
  Result<AnswerStats> Answer(const std::string& prompt, SamplingParams sampling,
                             const std::function<void(std::string_view)>& on_text);
  // Any thread. An answer under way ends with kCancelled.
  void Stop() { stack_->client().CancelAll(); }

 private:
  LocalAnswer() = default;
  void AwaitEvents();

  std::mutex mutex_;
  std::condition_variable arrived_;
  bool signalled_ = false;  // guarded by mutex_
  std::unique_ptr<EngineStack> stack_;
  std::unique_ptr<const text::ChatTemplate> template_;
};

}  // namespace hayate::app
