#include "app/local_answer.h"

#include <algorithm>
#include <utility>

#include "app/chat_template_loading.h"
#include "app/load_progress.h"
#include "text/detokenizer.h"

namespace hayate::app {

Result<std::unique_ptr<LocalAnswer>> LocalAnswer::Create(const ModelOptions& model) {
  auto local = std::unique_ptr<LocalAnswer>(new LocalAnswer());
  LoadProgress progress;
  EngineStack::Options options;
  options.model = model;
  options.model.max_running_requests = 1;
  options.progress = [&progress](int64_t done, int64_t total) { progress.Update(done, total); };
  options.wakes.push_back([raw = local.get()] {
    {
      std::lock_guard lock(raw->mutex_);
      raw->signalled_ = true;
    }
    raw->arrived_.notify_one();
  });
  auto stack = EngineStack::Create(std::move(options));
  progress.Finish();
  if (!stack.ok()) return stack.status();
  local->stack_ = std::move(stack).value();
  ASSIGN_OR_RETURN(local->template_,
                   LoadChatTemplate(*local->stack_->checkpoint(), *local->stack_->tokenizer(), ""));
  local->stack_->Start();
  return local;
}

LocalAnswer::~LocalAnswer() {
  if (stack_) stack_->Stop(0);
}

Result<std::string> LocalAnswer::RenderChat(const Conversation& conversation) const {
  text::ChatInput input;
  input.messages = text::MessagesValue(conversation);
  return template_->Render(input);
}

void LocalAnswer::AwaitEvents() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return signalled_; });
  signalled_ = false;
}

Result<AnswerStats> LocalAnswer::Answer(const std::string& prompt, SamplingParams sampling,
                                        const std::function<void(std::string_view)>& on_text) {
  const auto& tokenizer = stack_->tokenizer();
  Request request;
  request.id = stack_->client().NewId();
  ASSIGN_OR_RETURN(request.prompt,
                   tokenizer->Encode(prompt, {.add_bos_eos = text::AddBosEos::kNo}));
  AnswerStats stats;
  stats.prompt_tokens = static_cast<int32_t>(request.prompt.size());
  sampling.max_new_tokens =
      std::min(sampling.max_new_tokens, stack_->max_context() - stats.prompt_tokens);
  sampling.stop_token_ids = stack_->facts().eos_ids;
  request.sampling = std::move(sampling);
  if (request.sampling.max_new_tokens <= 0) {
    return Status(
        ErrorCode::kContextTooLong,
        "the prompt fills the context of " + std::to_string(stack_->max_context()) + " tokens");
  }
  RETURN_IF_ERROR(stack_->client().Submit(std::move(request)));

  text::Detokenizer detokenizer(tokenizer, {.position = text::TextPosition::kMiddle});
  SteadyClock clock;
  int64_t first_ns = 0;
  std::vector<TokenEvent> events;
  for (;;) {
    AwaitEvents();
    stack_->outbox(0).Drain(events);
    for (const TokenEvent& event : events) {
      if (!event.tokens.empty() && first_ns == 0) first_ns = clock.NowNs();
      stats.completion_tokens += static_cast<int32_t>(event.tokens.size());
      stats.cached_tokens = event.cached_tokens;
      on_text(detokenizer.Push(event.tokens));
      if (!event.finish) continue;
      if (event.finish == FinishReason::kAbort) return event.status;
      on_text(detokenizer.Flush());
      const double seconds = static_cast<double>(clock.NowNs() - first_ns) * 1e-9;
      if (stats.completion_tokens > 1) stats.tokens_per_s = (stats.completion_tokens - 1) / seconds;
      return stats;
    }
  }
}

}  // namespace hayate::app
