#include "api/generation_exchange.h"

#include <algorithm>
#include <utility>

#include "api/prompt_keys.h"
#include "api/send_error.h"
#include "base/error.h"
#include "http/sse.h"

namespace hayate::api {
namespace {

std::unique_ptr<Formatter> MakeFormatter(const AnswerHead& head, ResponseStore* responses) {
  switch (head.spec->dialect) {
    case Dialect::kChat:
      return MakeChatFormatter(head);
    case Dialect::kCompletion:
      return MakeCompletionFormatter(head);
    case Dialect::kGenerate:
      return MakeGenerateFormatter(head);
    case Dialect::kResponses:
      return MakeResponsesFormatter(head, responses);
    case Dialect::kMessages:
      return MakeMessagesFormatter(head);
    case Dialect::kOllamaChat:
    case Dialect::kOllamaGenerate:
      return MakeOllamaFormatter(head);
    case Dialect::kScore:
    case Dialect::kRerank:
      return MakeScoreFormatter(head);
    case Dialect::kEmbedding:
      return MakeEmbeddingFormatter(head);
  }
  CHECK(false) << "unknown Dialect";
  return {};
}

ErrorShape ShapeOf(Dialect dialect) {
  if (dialect == Dialect::kMessages) return ErrorShape::kAnthropic;
  const bool ollama = dialect == Dialect::kOllamaChat || dialect == Dialect::kOllamaGenerate;
  return ollama ? ErrorShape::kOllama : ErrorShape::kOpenAi;
}

}  // namespace

GenerationExchange::GenerationExchange(Parts parts, std::string id, http::ResponseWriter writer)
    : parts_(std::move(parts)), id_(std::move(id)), writer_(std::move(writer)) {
  formatter_ = MakeFormatter({.id = id_,
                              .created = parts_.created,
                              .call_seed = parts_.call_seed,
                              .spec = parts_.spec.get(),
                              .model = parts_.model},
                             parts_.responses);
}

GenerationExchange::~GenerationExchange() {
  Note();
  if (parts_.spec->session && !turn_ended_) parts_.sessions->Drop(*parts_.spec->session, id_);
  CancelRest();
  if (names_claimed_) parts_.live->Release(names_);
}

bool GenerationExchange::ClaimNames() {
  names_.push_back(id_);
  if (parts_.spec->HasNamePerPrompt()) {
    for (size_t p = 0; p < parts_.spec->prompts.size(); ++p) {
      names_.push_back(parts_.spec->NameOfPrompt(p));
    }
  }
  const std::optional<std::string> taken = parts_.live->Claim(names_);
  names_claimed_ = !taken;
  if (taken) Fail(InvalidField("rid", "'{}' names a request that is still running", *taken));
  return names_claimed_;
}

void GenerationExchange::MakeChoices() {
  if (parts_.record != nullptr) {
    parts_.record->generates = true;
    parts_.record->prepared_ns = SteadyClock().NowNs();
  }
  const auto n = static_cast<size_t>(parts_.spec->n);
  choices_.reserve(prompts_.size() * n);
  for (size_t p = 0; p < prompts_.size(); ++p) {
    const PreparedPrompt& prompt = prompts_[p];
    for (size_t c = 0; c < n; ++c) {
      choices_.emplace_back(parts_.spec->OfPrompt(p), *parts_.model,
                            Choice::Prompt{.tokens = static_cast<int32_t>(prompt.ids.size()),
                                           .thinking = prompt.thinking});
    }
  }
}

bool GenerationExchange::SubmitChoice(size_t index, uint64_t fresh_seed) {
  const GenerationSpec& spec = *parts_.spec;
  const auto n = static_cast<size_t>(spec.n);
  const PreparedPrompt& prompt = prompts_[index / n];
  const GenerationSpec& own = spec.OfPrompt(index / n);
  const uint64_t seed = own.seed ? static_cast<uint64_t>(*own.seed) : fresh_seed;
  Request request;
  request.id = parts_.client->NewId();
  request.prompt = prompt.ids;
  request.sampling = own.sampling;
  request.sampling.max_new_tokens = prompt.max_new_tokens;
  request.sampling.seed = seed + index % n;
  request.sampling.stop_token_ids = parts_.model->eos_ids;
  request.sampling.stop_token_ids.insert(request.sampling.stop_token_ids.end(),
                                         own.stop_token_ids.begin(), own.stop_token_ids.end());
  request.logprobs = spec.EngineLogprobs();
  request.grammar = grammar_;
  request.priority = spec.priority;
  if (spec.deadline_ms) {
    constexpr int64_t kNsPerMs = 1'000'000;
    request.deadline_ns = parts_.client->NowNs() + *spec.deadline_ms * kNsPerMs;
  }
  request.cache_namespace = spec.cache_namespace;
  request.prefix_keys = PrefixKeysOf(spec, prompt.ids.size());
  request.outbox = parts_.outbox;
  const RequestId id = request.id;
  if (const Status status = parts_.client->Submit(std::move(request)); !status.ok()) {
    CancelRest();
    Fail(status);
    return false;
  }
  requests_.push_back(id);
  parts_.live->Add(id_, id);
  if (names_.size() > 1) parts_.live->Add(names_[1 + index / n], id);
  return true;
}

void GenerationExchange::Fail(const Status& status) {
  const bool dismissed = detached_ && !parts_.spec->stream;
  StreamHeld();
  if (streaming_ || detached_) formatter_->Fail(status, out_);
  if (streaming_) {
    writer_.Write(out_);
    writer_.End();
  } else if (!dismissed) {
    SendError(writer_, status, ShapeOf(parts_.spec->dialect));
  }
  out_.clear();
  over_ = true;
}

void GenerationExchange::Detach(std::string_view receipt) {
  detached_ = true;
  if (!parts_.spec->stream) SendJson(writer_, receipt);
}

bool GenerationExchange::EndsWithError(const ChoiceDelta& delta) const {
  // A cancel that a client asked for is an ordinary end; anything else is an error.
  return delta.end && delta.end->reason == FinishReason::kAbort &&
         delta.end->status.code() != ErrorCode::kCancelled;
}

void GenerationExchange::OnEvent(size_t index, TokenEvent& event) {
  Choice& choice = choices_[index];
  if (over_ || choice.ended()) return;
  if (parts_.record != nullptr && parts_.record->first_token_ns == 0 && !event.tokens.empty()) {
    parts_.record->first_token_ns = SteadyClock().NowNs();
  }
  ChoiceDelta delta = choice.Push(event);
  if (parts_.spec->session) {
    turn_output_.insert(turn_output_.end(), delta.tokens.begin(), delta.tokens.end());
  }
  if (EndsWithError(delta)) {
    CancelRest();
    Fail(delta.end->status);
    return;
  }
  const bool ended = delta.end.has_value();
  if (ended) EndTurn();
  // A stop string is found here, after the engine went on: it must not go on.
  if (ended && !event.finish) parts_.client->Complete(requests_[index]);
  if (!parts_.spec->stream) {
    formatter_->Gather(View(index), std::move(delta));
  } else {
    Stream(index, std::move(delta));
  }
  if (ended) ++num_ended_;
}

void GenerationExchange::Stream(size_t index, ChoiceDelta delta) {
  if (!streaming_) {
    streaming_ = true;
    writer_.BeginStream({.content_type = formatter_->stream_type()});
    for (size_t i = 0; i < choices_.size(); ++i) formatter_->Open(View(i), out_);
    held_.resize(choices_.size());
  }
  const size_t prompt = index / static_cast<size_t>(parts_.spec->n);
  const auto interval = static_cast<size_t>(parts_.spec->OfPrompt(prompt).stream_interval);
  Held& held = held_[index];
  if (interval > 1) {
    // Stop texts were looked for already: waiting changes when text shows, never what.
    held.delta.Append(std::move(delta));
    const size_t due = held.begun ? interval : 1;
    if (!held.delta.end && held.delta.tokens.size() < due) return;
    held.begun = true;
    delta = std::exchange(held.delta, {});
  }
  formatter_->Delta(View(index), delta, CountUsage(), out_);
}

void GenerationExchange::StreamHeld() {
  for (size_t i = 0; i < held_.size(); ++i) {
    if (held_[i].delta.tokens.empty()) continue;
    formatter_->Delta(View(i), held_[i].delta, CountUsage(), out_);
  }
  held_.clear();
}

bool GenerationExchange::Flush() {
  if (over_) return true;
  const bool complete = num_ended_ == choices_.size();
  if (!parts_.spec->stream) {
    if (!complete) return false;
    Note();
    const std::string body = formatter_->Render(ShownViews(), CountUsage());
    if (!detached_) SendJson(writer_, body);
    over_ = true;
    return true;
  }
  if (complete) formatter_->Close(CountUsage(), out_);
  if (!out_.empty()) writer_.Write(out_);
  out_.clear();
  if (!complete) return false;
  Note();
  writer_.End();
  over_ = true;
  return true;
}

void GenerationExchange::Note() {
  if (parts_.record == nullptr || choices_.empty()) return;
  const Usage usage = CountUsage();
  parts_.record->prompt_tokens = usage.prompt_tokens;
  parts_.record->completion_tokens = usage.completion_tokens;
  parts_.record->cached_tokens = usage.cached_tokens;
}

void GenerationExchange::EndTurn() {
  if (!parts_.spec->session) return;
  turn_ended_ = true;
  parts_.sessions->Finish(*parts_.spec->session, id_, prompts_.front().ids,
                          std::move(turn_output_));
}

Usage GenerationExchange::CountUsage() const {
  Usage usage;
  for (size_t i = 0; i < choices_.size(); ++i) {
    usage.completion_tokens += choices_[i].completion_tokens();
    usage.reasoning_tokens += choices_[i].reasoning_tokens();
    if (i % static_cast<size_t>(parts_.spec->n) != 0) continue;
    usage.prompt_tokens += choices_[i].prompt_tokens();
    usage.cached_tokens += choices_[i].cached_tokens();
  }
  return usage;
}

ChoiceView GenerationExchange::View(size_t index) {
  const size_t prompt = index / static_cast<size_t>(parts_.spec->n);
  return {index, index, &choices_[index], &prompts_[prompt].ids};
}

std::vector<ChoiceView> GenerationExchange::ShownViews() {
  std::vector<ChoiceView> views;
  for (size_t i = 0; i < choices_.size(); ++i) views.push_back(View(i));
  if (parts_.spec->num_best == 0) return views;
  const auto n = static_cast<size_t>(parts_.spec->n);
  std::vector<ChoiceView> best;
  for (size_t first = 0; first < views.size(); first += n) {
    const auto begin = views.begin() + static_cast<ptrdiff_t>(first);
    std::stable_sort(begin, begin + static_cast<ptrdiff_t>(n),
                     [](const ChoiceView& a, const ChoiceView& b) {
                       return a.choice->cumulative_logprob() > b.choice->cumulative_logprob();
                     });
    for (int32_t i = 0; i < parts_.spec->num_best; ++i) {
      best.push_back(begin[i]);
      best.back().shown = best.size() - 1;
    }
  }
  return best;
}

void GenerationExchange::CancelRest() {
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (!choices_[i].ended()) parts_.client->Cancel(requests_[i]);
  }
}

}  // namespace hayate::api
