#include "api/service.h"

#include <simdjson.h>

#include <algorithm>

#include "api/error_table.h"
#include "api/field_reader.h"
#include "api/messages_parse.h"
#include "api/native_parse.h"
#include "api/openai_parse.h"
#include "api/openapi.h"
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

// Compares without leaking where the first difference is.
bool EqualConstantTime(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^
                  static_cast<unsigned char>(b.empty() ? 0 : b[i % b.size()]);
  }
  return difference == 0;
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

Service::Service(ServiceOptions options, ServedModel model, engine::Client& client,
                 obs::Registry& registry, std::vector<ExchangeTable*> tables)
    : options_(std::move(options)),
      model_(std::move(model)),
      client_(client),
      registry_(registry),
      tables_(std::move(tables)),
      responses_({}),
      openapi_(RenderOpenApi()) {
  text_pool_.emplace("text", options_.num_text_threads, options_.max_text_tasks);
}

Service::~Service() = default;

const std::vector<Service::RouteEntry>& Service::Routes() {
  static const std::vector<RouteEntry> kRoutes = {
      {"POST", "/v1/chat/completions", &Service::ChatCompletions, false},
      {"POST", "/v1/completions", &Service::Completions, false},
      {"POST", "/generate", &Service::Generate, false},
      {"PUT", "/generate", &Service::Generate, false},
      {"POST", "/v1/responses", &Service::Responses, false},
      {"GET", "/v1/responses/{id}", &Service::RetrieveResponse, false},
      {"DELETE", "/v1/responses/{id}", &Service::DeleteResponse, false},
      {"POST", "/v1/responses/{id}/cancel", &Service::CancelResponse, false},
      {"GET", "/v1/responses/{id}/input_items", &Service::ListResponseInput, false},
      {"POST", "/v1/messages", &Service::Messages, false},
      {"POST", "/v1/messages/count_tokens", &Service::CountTokens, false},
      {"GET", "/v1/models", &Service::Models, false},
      {"GET", "/v1/models/{path}", &Service::Models, false},
      {"GET", "/health", &Service::Health, true},
      {"GET", "/health_generate", &Service::HealthGenerate, true},
      {"GET", "/get_model_info", &Service::ModelInfo, false},
      {"GET", "/model_info", &Service::ModelInfo, false},
      {"GET", "/get_server_info", &Service::ServerInfo, false},
      {"GET", "/server_info", &Service::ServerInfo, false},
      {"GET", "/metrics", &Service::Metrics, true},
      {"GET", "/flush_cache", &Service::FlushCache, false},
      {"POST", "/flush_cache", &Service::FlushCache, false},
      {"POST", "/abort_request", &Service::AbortRequest, false},
      {"POST", "/tokenize", &Service::Tokenize, false},
      {"POST", "/v1/tokenize", &Service::Tokenize, false},
      {"POST", "/detokenize", &Service::Detokenize, false},
      {"POST", "/v1/detokenize", &Service::Detokenize, false},
      {"GET", "/openapi.json", &Service::OpenApi, true},
  };
  return kRoutes;
}

std::string Service::RenderOpenApi() {
  std::vector<OpenApiRoute> routes;
  for (const RouteEntry& entry : Routes()) {
    routes.push_back({entry.method, entry.path, !entry.open});
  }
  return OpenApiDocument(routes);
}

void Service::OpenApi(http::Request&, http::ResponseWriter writer) { SendJson(writer, openapi_); }

void Service::Handle(http::Request& request, http::ResponseWriter writer) {
  const std::string_view method = request.method == "HEAD" ? "GET" : request.method;
  for (const RouteEntry& entry : Routes()) {
    if (entry.method != method || !MatchesPath(entry.path, request.path)) continue;
    if (!entry.open && !Authorised(request)) {
      SendError(writer,
                Status(ErrorCode::kUnauthenticated,
                       "the API key is missing or wrong; send Authorization: Bearer KEY"),
                ErrorShapeOf(request.path));
      return;
    }
    (this->*entry.route)(request, std::move(writer));
    return;
  }
  RefuseRoute(request, writer);
}

bool Service::Authorised(const http::Request& request) const {
  if (options_.api_key.empty()) return true;
  const auto header = request.headers.Find("Authorization");
  constexpr std::string_view kBearer = "Bearer ";
  return header && header->size() > kBearer.size() &&
         http::EqualsIgnoreCase(header->substr(0, kBearer.size()), kBearer) &&
         EqualConstantTime(header->substr(kBearer.size()), options_.api_key);
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
  writer.Send({.status = 405, .content_type = "application/json", .headers = {&allow, 1}},
              ErrorBody(405, fmt::format("{} takes {}", request.path, allowed)));
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
  ExchangeTable& table = *tables_[static_cast<size_t>(request.thread.index())];
  // The writer belongs to its http thread: the task only carries it there and back.
  auto shared = std::make_shared<http::ResponseWriter>(std::move(writer));
  const ErrorShape shape = ErrorShapeOf(request.path);
  const bool queued = text_pool_->TrySubmit(
      [shared, &table, content_type, shape, work = std::move(work)]() mutable {
        table.Post([shared = std::move(shared), content_type, shape, answer = work()] {
          if (!answer.ok()) return SendError(*shared, answer.status(), shape);
          shared->Send({.content_type = content_type}, *answer);
        });
      });
  if (queued) return;
  SendError(*shared,
            Status(ErrorCode::kResourceExhausted,
                   "too many texts wait for the tokenizer; try again later"),
            shape);
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
  if (choices > options_.max_queued_requests) {
    return InvalidField("n", "asks for {} answers, at most {} may wait", choices,
                        options_.max_queued_requests);
  }
  const engine::EngineLoad load = client_.load();
  if (load.num_waiting + choices > options_.max_queued_requests + load.num_free_slots) {
    return Error(ErrorCode::kResourceExhausted, "the queue of {} requests is full; try again later",
                 options_.max_queued_requests);
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
  const auto spec = std::make_shared<const GenerationSpec>(std::move(parsed));
  const int index = request.thread.index();
  ExchangeTable& table = *tables_[static_cast<size_t>(index)];
  std::string id = spec->request_ids.size() == 1
                       ? spec->request_ids.front()
                       : std::string(IdPrefix(spec->dialect)) + table.MakeId();
  const int64_t created = UnixSeconds();
  const uint64_t key = table.Add(
      std::make_unique<GenerationExchange>(GenerationExchange::Parts{.spec = spec,
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
  model_.grammars->Compile(source, [shared, key, &table](auto compiled) {
    if (!compiled.ok()) return table.PushPrepared(key, compiled.status());
    shared->grammar = *std::move(compiled);
    table.PushPrepared(key, std::move(*shared));
  });
}

}  // namespace hayate::api
