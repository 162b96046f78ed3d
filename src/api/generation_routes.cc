// Service: routes that generate, from a body to its exchange.

#include <simdjson.h>

#include <algorithm>
#include <utility>

#include "api/error_table.h"
#include "api/field_reader.h"
#include "api/messages_parse.h"
#include "api/native_parse.h"
#include "api/openai_parse.h"
#include "api/prompt_keys.h"
#include "api/responses_object.h"
#include "api/responses_parse.h"
#include "api/send_error.h"
#include "api/service.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "base/log.h"

namespace hayate::api {
namespace {

// A larger body is read on the text pool: the streams of its http thread do not wait for it. Up to
// here reading takes a fraction of a millisecond.
constexpr size_t kMaxInlineBody = 256 << 10;
constexpr size_t kMaxLoggedFields = 8;

// The log is read by people and line by line: a few names, each short and without control
// characters.
std::string LoggedNames(const std::vector<std::string>& fields) {
  std::string names;
  for (size_t i = 0; i < std::min(fields.size(), kMaxLoggedFields); ++i) {
    if (i > 0) names += ", ";
    AppendJsonString(names, Shown(fields[i]));
  }
  if (fields.size() > kMaxLoggedFields) names += ", …";
  return names;
}

std::string_view IdPrefix(Dialect dialect) {
  switch (dialect) {
    case Dialect::kChat:
      return "chatcmpl-";
    case Dialect::kCompletion:
      return "cmpl-";
    case Dialect::kGenerate:
      return "";
    case Dialect::kResponses:
      return "resp_";
    case Dialect::kMessages:
      return "msg_";
    case Dialect::kScore:
      return "score-";
    case Dialect::kRerank:
      return "rerank-";
    case Dialect::kEmbedding:
      return "embd-";
    case Dialect::kOllamaChat:
    case Dialect::kOllamaGenerate:
      return "ollama-";
  }
  return "";
}

// What needs a grammar is refused before any work where grammars are switched off.
Status CheckGrammarUse(const GenerationSpec& spec, const ServedModel& model) {
  if (model.grammars != nullptr) return OkStatus();
  const bool demanded = spec.tools.active() && spec.tools.demanded();
  if (!spec.grammar && !demanded && !spec.thinking_budget) return OkStatus();
  return InvalidField(spec.grammar ? spec.grammar->field
                      : demanded   ? "tool_choice"
                                   : "thinking_budget",
                      "needs a grammar; this server runs with --grammar-backend none");
}

}  // namespace

void Service::ChatCompletions(http::Request& request, http::ResponseWriter writer) {
  StartFromBody(request, std::move(writer), [this](const auto& body, auto& unknown) {
    return ParseChatRequest(body, model_, unknown);
  });
}

void Service::Completions(http::Request& request, http::ResponseWriter writer) {
  StartFromBody(request, std::move(writer), [this](const auto& body, auto& unknown) {
    return ParseCompletionRequest(body, model_, unknown);
  });
}

void Service::Generate(http::Request& request, http::ResponseWriter writer) {
  StartFromBody(request, std::move(writer), [this](const auto& body, auto& unknown) {
    return ParseGenerateRequest(body, model_, unknown);
  });
}

void Service::Responses(http::Request& request, http::ResponseWriter writer) {
  const uint64_t owner = OwnerOf(request);
  StartFromBody(request, std::move(writer),
                [this, owner](const auto& body, auto& unknown) -> Result<GenerationSpec> {
                  const auto find_conversation = [&](std::string_view id) -> Result<ResponseItems> {
                    auto items = responses_.Conversation(std::string(id), owner);
                    if (items.ok()) return items;
                    return InvalidField("previous_response_id", "{}", items.status().message());
                  };
                  ASSIGN_OR_RETURN(GenerationSpec spec,
                                   ParseResponsesRequest(body, model_, find_conversation, unknown));
                  spec.response->owner = owner;
                  return spec;
                });
}

void Service::Messages(http::Request& request, http::ResponseWriter writer) {
  StartFromBody(request, std::move(writer), [this](const auto& body, auto& unknown) {
    return ParseMessagesRequest(body, model_, MessagesUse::kGenerate, unknown);
  });
}

void Service::HealthGenerate(http::Request& request, http::ResponseWriter writer) {
  ReadRequest read;
  read.spec.dialect = Dialect::kGenerate;
  read.spec.prompts.emplace_back(std::vector<TokenId>{model_.tokenizer->bos_id().value_or(0)});
  read.spec.max_new_tokens = 1;
  read.spec.sampling.temperature = 0.0f;
  StartGeneration(std::move(read), OriginOf(request), std::move(writer));
}

Service::Origin Service::OriginOf(const http::Request& request) {
  return {.path = std::string(request.path),
          .thread = request.thread.index(),
          .record = std::static_pointer_cast<RequestRecord>(request.context)};
}

Result<Service::ReadRequest> Service::Read(std::string_view body, const ReadBody& read) const {
  simdjson::dom::parser parser;
  ASSIGN_OR_RETURN(const simdjson::dom::object object, ParseBody(parser, body));
  ReadRequest request;
  ASSIGN_OR_RETURN(request.spec, read(object, request.unknown));
  if (client_.cache_journal() != nullptr) HashPromptOf(body, request.spec);
  return request;
}

void Service::StartFromBody(http::Request& request, http::ResponseWriter writer, ReadBody read) {
  if (request.body.size() <= kMaxInlineBody) {
    auto inline_read = Read(request.body, read);
    if (!inline_read.ok()) {
      return SendError(writer, inline_read.status(), ErrorShapeOf(request.path));
    }
    return StartGeneration(std::move(inline_read).value(), OriginOf(request), std::move(writer));
  }
  // The writer belongs to its http thread: the task only carries it there and back.
  struct Carried {
    std::string body;
    ReadBody read;
    Origin origin;
    http::ResponseWriter writer;
    Result<ReadRequest> result;
  };
  ExchangeTable& table = *tables_[static_cast<size_t>(request.thread.index())];
  auto carried =
      std::make_shared<Carried>(Carried{std::move(request.body), std::move(read), OriginOf(request),
                                        std::move(writer), Status(ErrorCode::kInternal, "unread")});
  const bool queued = text_pool_->TrySubmit([this, carried, &table]() mutable {
    carried->result = Read(carried->body, carried->read);
    carried->body = std::string();
    table.Post([this, carried = std::move(carried)] {
      if (carried->writer.closed()) return;
      if (!carried->result.ok()) {
        return SendError(carried->writer, carried->result.status(),
                         ErrorShapeOf(carried->origin.path));
      }
      StartGeneration(std::move(carried->result).value(), carried->origin,
                      std::move(carried->writer));
    });
  });
  if (!queued) SendError(carried->writer, TextPoolIsFull(), ErrorShapeOf(carried->origin.path));
}

Status Service::CheckStart(const GenerationSpec& spec) const {
  if (!KnowsModel(spec.model)) {
    return Error(ErrorCode::kNotFound, "the model '{}' is not served here; this is '{}'",
                 Shown(spec.model), model_.name)
        .WithParam("model");
  }
  if (client_.failed()) return Status(ErrorCode::kUnavailable, "the device has failed");
  RETURN_IF_ERROR(CheckGrammarUse(spec, model_));
  const auto choices = static_cast<int64_t>(spec.prompts.size()) * spec.n;
  const int32_t max_queued = max_queued_.load(std::memory_order_relaxed);
  if (choices > max_queued) {
    return InvalidField("n", "asks for {} answers, at most {} may wait", choices, max_queued);
  }
  const engine::EngineLoad load = client_.load();
  if (load.num_waiting + choices > max_queued + load.num_free_slots) {
    return Error(ErrorCode::kResourceExhausted, "the queue of {} requests is full; try again later",
                 max_queued);
  }
  return OkStatus();
}

Status Service::TextPoolIsFull() {
  return Status(ErrorCode::kResourceExhausted,
                "too many prompts wait to be tokenised; try again later");
}

void Service::StartGeneration(ReadRequest read, const Origin& origin, http::ResponseWriter writer) {
  GenerationSpec& parsed = read.spec;
  if (!read.unknown.empty()) {
    LOG_INFO("{}: ignored unknown fields: {}", origin.path, LoggedNames(read.unknown));
  }
  if (const Status status = CheckStart(parsed); !status.ok()) {
    return SendError(writer, status, ErrorShapeOf(origin.path));
  }
  ExchangeTable& table = *tables_[static_cast<size_t>(origin.thread)];
  const std::string id = parsed.request_ids.size() == 1
                             ? parsed.request_ids.front()
                             : std::string(IdPrefix(parsed.dialect)) + table.MakeId();
  if (parsed.session) {
    auto prefix = sessions_.Begin(*parsed.session, id);
    if (!prefix.ok()) return SendError(writer, prefix.status(), ErrorShapeOf(origin.path));
    parsed.session_prefix = *std::move(prefix);
  }
  const auto spec = std::make_shared<const GenerationSpec>(std::move(parsed));
  const int64_t created = UnixSeconds();
  const uint64_t key = table.Add(
      std::make_unique<GenerationExchange>(GenerationExchange::Parts{.record = origin.record,
                                                                     .sessions = &sessions_,
                                                                     .spec = spec,
                                                                     .model = &model_,
                                                                     .client = &client_,
                                                                     .live = &live_,
                                                                     .responses = &responses_,
                                                                     .outbox = origin.thread,
                                                                     .created = created,
                                                                     .call_seed = table.MakeSeed()},
                                           id, std::move(writer)));
  const bool background = spec->response && spec->response->background;
  if (background && !StartBackground(*spec, id, created, key, table)) return;
  const bool queued =
      text_pool_->TrySubmit([this, spec, key, &table] { PrepareExchange(*spec, key, table); });
  if (queued) return;
  table.Find(key)->Fail(TextPoolIsFull());
  table.Remove(key);
}

bool Service::StartBackground(const GenerationSpec& spec, const std::string& id, int64_t created,
                              uint64_t key, ExchangeTable& table) {
  const std::string body = RenderResponse(
      {.id = id, .created = created, .spec = &spec, .model = &model_}, {.status = "queued"});
  const Status begun =
      responses_.Begin(id, {body, spec.response->input, {}, spec.response->owner},
                       [&table, key] { table.Post([&table, key] { table.Remove(key); }); });
  if (begun.ok()) {
    table.Find(key)->Detach(body);
  } else {
    table.Find(key)->Fail(begun);
    table.Remove(key);
  }
  return begun.ok();
}

void Service::PrepareExchange(const GenerationSpec& spec, uint64_t key, ExchangeTable& table) {
  auto prepared = Prepare(spec, model_);
  if (!prepared.ok() || !prepared->grammar_source) {
    return table.PushPrepared(key, std::move(prepared));
  }
  // The compiler has threads of its own: the text pool does not wait for it.
  const grammar::GrammarSource source = *prepared->grammar_source;
  auto shared = std::make_shared<PreparedGeneration>(*std::move(prepared));
  grammar_metrics_.total.Increment();
  grammar_metrics_.queued.Add(1);
  const int64_t begin_ns = SteadyClock().NowNs();
  model_.grammars->Compile(source, [this, shared, key, begin_ns, &table](auto compiled) {
    CountGrammar(compiled.status(), SteadyClock().NowNs() - begin_ns);
    if (!compiled.ok()) return table.PushPrepared(key, compiled.status());
    shared->grammar = *std::move(compiled);
    table.PushPrepared(key, std::move(*shared));
  });
}

void Service::CountGrammar(const Status& status, int64_t took_ns) {
  constexpr double kSecondsPerNs = 1e-9;
  grammar_metrics_.queued.Add(-1);
  grammar_metrics_.seconds.Observe(static_cast<double>(took_ns) * kSecondsPerNs);
  if (!status.ok()) grammar_metrics_.aborted.Increment();
  if (status.code() == ErrorCode::kDeadlineExceeded) grammar_metrics_.timeouts.Increment();
}

}  // namespace hayate::api
