#include "api/service.h"

#include <simdjson.h>

#include <algorithm>

#include "api/error_table.h"
#include "api/field_reader.h"
#include "api/messages_parse.h"
#include "api/native_parse.h"
#include "api/openai_parse.h"
#include "api/openapi.h"
#include "api/prompt_keys.h"
#include "api/responses_object.h"
#include "api/responses_parse.h"
#include "api/send_error.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "base/log.h"

namespace hayate::api {
namespace {

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

// See RouteEntry::path.
bool MatchesPath(std::string_view pattern, std::string_view path) {
  const size_t begin = pattern.find('{');
  if (begin == std::string_view::npos) return pattern == path;
  if (!path.starts_with(pattern.substr(0, begin))) return false;
  const std::string_view after = pattern.substr(pattern.find('}') + 1);
  path.remove_prefix(begin);
  if (pattern.substr(begin) == "{path}") return !path.empty();
  const size_t end = std::min(path.find('/'), path.size());
  return end > 0 && path.substr(end) == after;
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

Service::Service(ServiceOptions options, Parts parts)
    : options_(std::move(options)),
      model_(std::move(parts.model)),
      client_(*parts.client),
      registry_(*parts.registry),
      step_log_(*parts.step_log),
      tables_(std::move(parts.tables)),
      access_(std::move(parts.access)),
      read_weights_(std::move(parts.read_weights)),
      update_weights_(std::move(parts.update_weights)),
      expert_record_(std::move(parts.expert_record)),
      log_(std::move(parts.log), registry_),
      grammar_metrics_(registry_),
      responses_({}),
      openapi_(RenderOpenApi()),
      sessions_({}, *parts.clock, tables_.front()->MakeSeed()),
      max_queued_(options_.max_queued_requests) {
  text_pool_.emplace("text", options_.num_text_threads, options_.max_text_tasks);
  update_pool_.emplace("update", 1, 1);
}

Service::~Service() = default;

const std::vector<Service::RouteEntry>& Service::Routes() {
  static const std::vector<RouteEntry> kRoutes = {
      {"POST", "/v1/chat/completions", &Service::ChatCompletions},
      {"POST", "/v1/completions", &Service::Completions},
      {"POST", "/generate", &Service::Generate},
      {"PUT", "/generate", &Service::Generate},
      {"POST", "/v1/responses", &Service::Responses},
      {"GET", "/v1/responses/{id}", &Service::RetrieveResponse},
      {"DELETE", "/v1/responses/{id}", &Service::DeleteResponse},
      {"POST", "/v1/responses/{id}/cancel", &Service::CancelResponse},
      {"GET", "/v1/responses/{id}/input_items", &Service::ListResponseInput},
      {"POST", "/v1/messages", &Service::Messages},
      {"POST", "/v1/messages/count_tokens", &Service::CountTokens},
      {"GET", "/v1/models", &Service::Models},
      {"GET", "/v1/models/{path}", &Service::Models},
      {"GET", "/health", &Service::Health, Access::kOpen},
      {"GET", "/health_generate", &Service::HealthGenerate, Access::kOpen},
      {"GET", "/get_model_info", &Service::ModelInfo},
      {"GET", "/model_info", &Service::ModelInfo},
      {"GET", "/get_server_info", &Service::ServerInfo},
      {"GET", "/server_info", &Service::ServerInfo},
      {"GET", "/metrics", &Service::Metrics, Access::kOpen},
      {"GET", "/v1/loads", &Service::Loads},
      {"GET", "/get_loads", &Service::Loads},
      {"GET", "/get_load", &Service::LoadOfOld},
      {"GET", "/v1/cache_events", &Service::CacheEvents},
      {"POST", "/tokenize", &Service::Tokenize},
      {"POST", "/v1/tokenize", &Service::Tokenize},
      {"POST", "/detokenize", &Service::Detokenize},
      {"POST", "/v1/detokenize", &Service::Detokenize},
      {"POST", "/v1/embeddings", &Service::Embeddings},
      {"POST", "/v1/score", &Service::Score},
      {"POST", "/v1/rerank", &Service::Rerank},
      {"POST", "/parse_function_call", &Service::ParseFunctionCall},
      {"POST", "/separate_reasoning", &Service::SeparateReasoning},
      {"POST", "/api/chat", &Service::OllamaChat},
      {"POST", "/api/generate", &Service::OllamaGenerate},
      {"GET", "/api/tags", &Service::OllamaTags},
      {"POST", "/api/show", &Service::OllamaShow},
      {"GET", "/api/version", &Service::OllamaVersion},
      {"POST", "/open_session", &Service::OpenSession},
      {"GET", "/open_session", &Service::OpenSession},
      {"POST", "/close_session", &Service::CloseSession},
      {"GET", "/close_session", &Service::CloseSession},
      {"GET", "/flush_cache", &Service::FlushCache, Access::kAdminIfKeyed},
      {"POST", "/flush_cache", &Service::FlushCache, Access::kAdminIfKeyed},
      {"POST", "/abort_request", &Service::AbortRequest},
      {"POST", "/pause_generation", &Service::PauseGeneration, Access::kAdmin},
      {"POST", "/continue_generation", &Service::ContinueGeneration, Access::kAdmin},
      {"POST", "/set_internal_state", &Service::SetInternalState, Access::kAdmin},
      {"GET", "/get_weights_by_name", &Service::GetWeightsByName, Access::kAdmin},
      {"POST", "/get_weights_by_name", &Service::GetWeightsByName, Access::kAdmin},
      {"POST", "/update_weights_from_disk", &Service::UpdateWeightsFromDisk, Access::kAdmin},
      {"POST", "/update_weight_version", &Service::UpdateWeightVersion, Access::kAdmin},
      {"GET", "/trace", &Service::Trace, Access::kAdmin},
      {"GET", "/start_profile", &Service::StartProfile, Access::kAdmin},
      {"POST", "/start_profile", &Service::StartProfile, Access::kAdmin},
      {"GET", "/stop_profile", &Service::StopProfile, Access::kAdmin},
      {"POST", "/stop_profile", &Service::StopProfile, Access::kAdmin},
      {"GET", "/start_expert_distribution_record", &Service::StartExpertRecord, Access::kAdmin},
      {"POST", "/start_expert_distribution_record", &Service::StartExpertRecord, Access::kAdmin},
      {"GET", "/stop_expert_distribution_record", &Service::StopExpertRecord, Access::kAdmin},
      {"POST", "/stop_expert_distribution_record", &Service::StopExpertRecord, Access::kAdmin},
      {"GET", "/dump_expert_distribution_record", &Service::DumpExpertRecord, Access::kAdmin},
      {"POST", "/dump_expert_distribution_record", &Service::DumpExpertRecord, Access::kAdmin},
      {"GET", "/openapi.json", &Service::OpenApi, Access::kOpen},
  };
  return kRoutes;
}

std::string Service::RenderOpenApi() {
  std::vector<OpenApiRoute> routes;
  for (const RouteEntry& entry : Routes()) {
    routes.push_back({entry.method, entry.path, entry.access != Access::kOpen});
  }
  return OpenApiDocument(routes);
}

void Service::OpenApi(http::Request&, http::ResponseWriter writer) { SendJson(writer, openapi_); }

const Service::RouteEntry* Service::FindRoute(std::string_view method, std::string_view path) {
  if (method == "HEAD") method = "GET";
  for (const RouteEntry& entry : Routes()) {
    if (entry.method == method && MatchesPath(entry.path, path)) return &entry;
  }
  return nullptr;
}

void Service::Handle(http::Request& request, http::ResponseWriter writer) {
  ExchangeTable& table = *tables_[static_cast<size_t>(request.thread.index())];
  const std::shared_ptr<RequestRecord> record = log_.Begin(request, table.rng());
  request.context = record;
  writer.AddField("X-Request-Id", record->request_id);
  writer.OnFinish([this, record](const http::Answered& answered) {
    record->use = KeyUse();
    log_.End(*record, answered);
  });
  if (AnswerPreflight(options_.cross_origin, request, writer)) return;
  Answer(request, std::move(writer), *record);
}

void Service::Answer(http::Request& request, http::ResponseWriter writer, RequestRecord& record) {
  const RouteEntry* entry = FindRoute(request.method, request.path);
  if (entry == nullptr) return RefuseRoute(request, writer);
  auto caller = access_->Admit(request, entry->access);
  if (!caller.ok()) return SendError(writer, caller.status(), ErrorShapeOf(request.path));
  record.key_id = std::move(caller->key_id);
  record.use = std::move(caller->use);
  (this->*entry->route)(request, std::move(writer));
}

void Service::RefuseRoute(const http::Request& request, http::ResponseWriter& writer) const {
  std::string allowed;
  for (const RouteEntry& entry : Routes()) {
    if (MatchesPath(entry.path, request.path))
      allowed += (allowed.empty() ? "" : ", ") + std::string(entry.method);
  }
  if (allowed.empty()) {
    SendError(writer,
              Error(ErrorCode::kNotFound, "there is no route {} {}", request.method, request.path),
              ErrorShapeOf(request.path));
    return;
  }
  const http::Header allow{"Allow", allowed};
  const Status refusal = Error(ErrorCode::kInvalidArgument, "{} takes {}", request.path, allowed);
  const ErrorShape shape = ErrorShapeOf(request.path);
  writer.Send(
      {.status = 405, .content_type = "application/json", .headers = {&allow, 1}},
      shape == ErrorShape::kOpenAi ? ErrorBody(405, refusal.message()) : ErrorBody(refusal, shape));
}

bool Service::KnowsModel(std::string_view name) const {
  return name.empty() || name == "default" || name == model_.name || name == model_.path;
}

void Service::ChatCompletions(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  std::vector<std::string> unknown;
  auto body = ParseBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status());
  auto spec = ParseChatRequest(*body, model_, unknown);
  if (!spec.ok()) return SendError(writer, spec.status());
  StartGeneration(std::move(spec).value(), unknown, request, std::move(writer));
}

void Service::Completions(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  std::vector<std::string> unknown;
  auto body = ParseBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status());
  auto spec = ParseCompletionRequest(*body, model_, unknown);
  if (!spec.ok()) return SendError(writer, spec.status());
  StartGeneration(std::move(spec).value(), unknown, request, std::move(writer));
}

void Service::Generate(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  std::vector<std::string> unknown;
  auto body = ParseBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status());
  auto spec = ParseGenerateRequest(*body, model_, unknown);
  if (!spec.ok()) return SendError(writer, spec.status());
  StartGeneration(std::move(spec).value(), unknown, request, std::move(writer));
}

void Service::Responses(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  std::vector<std::string> unknown;
  auto body = ParseBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status());
  const uint64_t owner = OwnerOf(request);
  const auto find_conversation = [&](std::string_view id) -> Result<ResponseItems> {
    auto items = responses_.Conversation(std::string(id), owner);
    if (items.ok()) return items;
    return InvalidField("previous_response_id", "{}", items.status().message());
  };
  auto spec = ParseResponsesRequest(*body, model_, find_conversation, unknown);
  if (!spec.ok()) return SendError(writer, spec.status());
  spec->response->owner = owner;
  StartGeneration(std::move(spec).value(), unknown, request, std::move(writer));
}

void Service::Messages(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  std::vector<std::string> unknown;
  auto body = ParseBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status(), ErrorShape::kAnthropic);
  auto spec = ParseMessagesRequest(*body, model_, MessagesUse::kGenerate, unknown);
  if (!spec.ok()) return SendError(writer, spec.status(), ErrorShape::kAnthropic);
  StartGeneration(std::move(spec).value(), unknown, request, std::move(writer));
}

void Service::HealthGenerate(http::Request& request, http::ResponseWriter writer) {
  GenerationSpec spec;
  spec.dialect = Dialect::kGenerate;
  spec.prompts.emplace_back(std::vector<TokenId>{model_.tokenizer->bos_id().value_or(0)});
  spec.max_new_tokens = 1;
  spec.sampling.temperature = 0.0f;
  StartGeneration(std::move(spec), {}, request, std::move(writer));
}

void Service::AnswerFromTextPool(http::Request& request, http::ResponseWriter writer,
                                 std::string_view content_type,
                                 std::function<Result<std::string>()> work) {
  AnswerFromPool(request, std::move(writer),
                 {.pool = &*text_pool_,
                  .content_type = content_type,
                  .work = std::move(work),
                  .busy = "too many texts wait for the tokenizer; try again later"});
}

void Service::AnswerFromPool(http::Request& request, http::ResponseWriter writer,
                             PooledWork pooled) {
  ExchangeTable& table = *tables_[static_cast<size_t>(request.thread.index())];
  // The writer belongs to its http thread: the task only carries it there and back.
  auto shared = std::make_shared<http::ResponseWriter>(std::move(writer));
  const ErrorShape shape = ErrorShapeOf(request.path);
  const bool queued =
      pooled.pool->TrySubmit([shared, &table, shape, content_type = pooled.content_type,
                              work = std::move(pooled.work)]() mutable {
        table.Post([shared = std::move(shared), content_type, shape, answer = work()] {
          if (!answer.ok()) return SendError(*shared, answer.status(), shape);
          shared->Send({.content_type = content_type}, *answer);
        });
      });
  if (queued) return;
  const Status busy(ErrorCode::kResourceExhausted, std::string(pooled.busy));
  SendError(*shared, busy, shape);
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

void Service::StartGeneration(GenerationSpec parsed, const std::vector<std::string>& unknown,
                              http::Request& request, http::ResponseWriter writer) {
  if (!unknown.empty()) {
    LOG_INFO("{}: ignored unknown fields: {}", request.path, LoggedNames(unknown));
  }
  if (const Status status = CheckStart(parsed); !status.ok()) {
    return SendError(writer, status, ErrorShapeOf(request.path));
  }
  const int index = request.thread.index();
  ExchangeTable& table = *tables_[static_cast<size_t>(index)];
  const std::string id = parsed.request_ids.size() == 1
                             ? parsed.request_ids.front()
                             : std::string(IdPrefix(parsed.dialect)) + table.MakeId();
  if (parsed.session) {
    auto prefix = sessions_.Begin(*parsed.session, id);
    if (!prefix.ok()) return SendError(writer, prefix.status(), ErrorShapeOf(request.path));
    parsed.session_prefix = *std::move(prefix);
  }
  if (client_.cache_journal() != nullptr) HashPromptOf(request.body, parsed);
  const auto spec = std::make_shared<const GenerationSpec>(std::move(parsed));
  const int64_t created = UnixSeconds();
  const uint64_t key = table.Add(std::make_unique<GenerationExchange>(
      GenerationExchange::Parts{.record = std::static_pointer_cast<RequestRecord>(request.context),
                                .sessions = &sessions_,
                                .spec = spec,
                                .model = &model_,
                                .client = &client_,
                                .live = &live_,
                                .responses = &responses_,
                                .outbox = index,
                                .created = created,
                                .call_seed = table.MakeSeed()},
      id, std::move(writer)));
  const bool background = spec->response && spec->response->background;
  if (background && !StartBackground(*spec, id, created, key, table)) return;
  const bool queued =
      text_pool_->TrySubmit([this, spec, key, &table] { PrepareExchange(*spec, key, table); });
  if (queued) return;
  table.Find(key)->Fail(Status(ErrorCode::kResourceExhausted,
                               "too many prompts wait to be tokenised; try again later"));
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
