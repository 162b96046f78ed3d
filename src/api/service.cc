#include "api/service.h"

#include <algorithm>

#include "api/error_table.h"
#include "api/openapi.h"
#include "api/send_error.h"
#include "base/error.h"

namespace hayate::api {
namespace {

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

}  // namespace hayate::api
