#pragma once
// The API: routes, authentication, and the work that is no text generation. Called on the http
// threads.

#include <simdjson.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/access_control.h"
#include "api/cross_origin.h"
#include "api/exchange_table.h"
#include "api/grammar_metrics.h"
#include "api/live_requests.h"
#include "api/request_log.h"
#include "api/response_store.h"
#include "api/served_model.h"
#include "api/session_table.h"
#include "api/step_profile.h"
#include "base/thread_pool.h"
#include "engine/client.h"
#include "http/server.h"
#include "obs/metrics.h"
#include "obs/step_log.h"

namespace hayate::api {

struct ServiceOptions {
  CrossOriginOptions cross_origin;
  bool enable_metrics = false;
  int32_t max_queued_requests = 1024;
  int num_text_threads = 1;
  size_t max_text_tasks = 4096;
};

// /update_weights_from_disk.
struct WeightUpdateRequest {
  std::string model_path;
  bool abort_all = false;
  bool flush_cache = true;
};

// How often experts are chosen: what it does is the caller's. Any thread; none blocks for long.
struct ExpertRecording {
  std::function<Status()> start, stop;
  std::function<Result<std::string>()> dump;  // JSON
};

class Service {
 public:
  // What it works with; everything that is pointed to outlives the service.
  struct Parts {
    ServedModel model;
    engine::Client* client;
    obs::Registry* registry;
    const obs::StepLog* step_log;
    const Clock* clock;
    std::vector<ExchangeTable*> tables;  // one per http thread
    std::unique_ptr<AccessControl> access;
    RequestLog::Options log;
    // The first rows of a tensor as JSON; may block.
    std::function<Result<std::string>(const std::string& name, int64_t max_rows)> read_weights;
    // Blocks until the new weights serve, or fail to.
    std::function<Status(const WeightUpdateRequest& update)> update_weights;
    ExpertRecording expert_record;
  };
  Service(ServiceOptions options, Parts parts);
  ~Service();
  // Waits for the pools and the grammar compiler; their results no longer reach a client. The
  // server must have stopped calling Handle, and the engine must have stopped; the exchange tables
  // must still be there.
  void Stop() {
    text_pool_.reset();
    update_pool_.reset();
    model_.grammars.reset();
  }

  void Handle(http::Request& request, http::ResponseWriter writer);

  // Any thread: reads the file of keys again.
  Status ReloadKeys() { return access_->Reload(); }

  // From here on /health says 503: load balancers look elsewhere.
  void BeginDraining() { draining_.store(true, std::memory_order_relaxed); }

 private:
  using Route = void (Service::*)(http::Request&, http::ResponseWriter);
  struct RouteEntry {
    std::string_view method;
    std::string_view path;  // may hold "{id}", one segment; or end with "{path}", the rest
    Route route;
    Access access = Access::kClient;
  };
  static const std::vector<RouteEntry>& Routes();
  static std::string RenderOpenApi();

  // Stands for the key that came with the request.
  static uint64_t OwnerOf(const http::Request& request);
  // The route of a request, or null.
  static const RouteEntry* FindRoute(std::string_view method, std::string_view path);
  void Answer(http::Request& request, http::ResponseWriter writer, RequestRecord& record);
  bool KnowsModel(std::string_view name) const;
  // Answers 404 or 405.
  void RefuseRoute(const http::Request& request, http::ResponseWriter& writer) const;

  void ChatCompletions(http::Request& request, http::ResponseWriter writer);
  void Completions(http::Request& request, http::ResponseWriter writer);
  void Generate(http::Request& request, http::ResponseWriter writer);
  void Responses(http::Request& request, http::ResponseWriter writer);
  void Messages(http::Request& request, http::ResponseWriter writer);
  void OllamaChat(http::Request& request, http::ResponseWriter writer);
  void OllamaGenerate(http::Request& request, http::ResponseWriter writer);
  void OllamaTags(http::Request& request, http::ResponseWriter writer);
  void OllamaShow(http::Request& request, http::ResponseWriter writer);
  void OllamaVersion(http::Request& request, http::ResponseWriter writer);
  void Score(http::Request& request, http::ResponseWriter writer);
  void Rerank(http::Request& request, http::ResponseWriter writer);
  void Embeddings(http::Request& request, http::ResponseWriter writer);
  void ParseFunctionCall(http::Request& request, http::ResponseWriter writer);
  void SeparateReasoning(http::Request& request, http::ResponseWriter writer);
  void HealthGenerate(http::Request& request, http::ResponseWriter writer);
  // Work off the http threads, and what is said where its pool takes no more.
  struct PooledWork {
    ThreadPool* pool;
    std::string_view content_type;
    std::function<Result<std::string>()> work;
    std::string_view busy;
  };
  // Runs the work and answers with what it gives.
  void AnswerFromPool(http::Request& request, http::ResponseWriter writer, PooledWork work);
  void AnswerFromTextPool(http::Request& request, http::ResponseWriter writer,
                          std::string_view content_type, std::function<Result<std::string>()> work);
  // Text pool: prompts and grammar, handed to the exchange when both are there.
  void PrepareExchange(const GenerationSpec& spec, uint64_t key, ExchangeTable& table);
  void CountGrammar(const Status& status, int64_t took_ns);
  // What can be said of a request before any work; OK when it may go on.
  Status CheckStart(const GenerationSpec& spec) const;
  // Registers an answer that is made in the background; false when there was no room for it.
  bool StartBackground(const GenerationSpec& spec, const std::string& id, int64_t created,
                       uint64_t key, ExchangeTable& table);
  // What a route that generates reads out of a body. Any thread.
  using ReadBody = std::function<Result<GenerationSpec>(const simdjson::dom::object& body,
                                                        std::vector<std::string>& unknown)>;
  struct ReadRequest {
    GenerationSpec spec;
    std::vector<std::string> unknown;  // names of fields
  };
  // Where a request came from, for what outlives its handler's call.
  struct Origin {
    std::string path;
    int thread;  // index of its http thread
    std::shared_ptr<RequestRecord> record;
  };
  static Origin OriginOf(const http::Request& request);
  Result<ReadRequest> Read(std::string_view body, const ReadBody& read) const;
  // Reads the request's body, a large one on the text pool, and starts what it asks for.
  void StartFromBody(http::Request& request, http::ResponseWriter writer, ReadBody read);
  static Status TextPoolIsFull();
  // On the origin's http thread.
  void StartGeneration(ReadRequest read, const Origin& origin, http::ResponseWriter writer);

  void Health(http::Request& request, http::ResponseWriter writer);
  void Models(http::Request& request, http::ResponseWriter writer);
  void ModelInfo(http::Request& request, http::ResponseWriter writer);
  void ServerInfo(http::Request& request, http::ResponseWriter writer);
  void Metrics(http::Request& request, http::ResponseWriter writer);
  void Loads(http::Request& request, http::ResponseWriter writer);
  void CacheEvents(http::Request& request, http::ResponseWriter writer);
  void LoadOfOld(http::Request& request, http::ResponseWriter writer);
  void FlushCache(http::Request& request, http::ResponseWriter writer);
  void PauseGeneration(http::Request& request, http::ResponseWriter writer);
  void ContinueGeneration(http::Request& request, http::ResponseWriter writer);
  void SetInternalState(http::Request& request, http::ResponseWriter writer);
  void GetWeightsByName(http::Request& request, http::ResponseWriter writer);
  void UpdateWeightsFromDisk(http::Request& request, http::ResponseWriter writer);
  void UpdateWeightVersion(http::Request& request, http::ResponseWriter writer);
  void OpenSession(http::Request& request, http::ResponseWriter writer);
  void CloseSession(http::Request& request, http::ResponseWriter writer);
  void Trace(http::Request& request, http::ResponseWriter writer);
  void StartProfile(http::Request& request, http::ResponseWriter writer);
  void StopProfile(http::Request& request, http::ResponseWriter writer);
  void StartExpertRecord(http::Request& request, http::ResponseWriter writer);
  void StopExpertRecord(http::Request& request, http::ResponseWriter writer);
  void DumpExpertRecord(http::Request& request, http::ResponseWriter writer);
  void AbortRequest(http::Request& request, http::ResponseWriter writer);
  void Tokenize(http::Request& request, http::ResponseWriter writer);
  void Detokenize(http::Request& request, http::ResponseWriter writer);
  void CountTokens(http::Request& request, http::ResponseWriter writer);
  void RetrieveResponse(http::Request& request, http::ResponseWriter writer);
  void DeleteResponse(http::Request& request, http::ResponseWriter writer);
  void CancelResponse(http::Request& request, http::ResponseWriter writer);
  void ListResponseInput(http::Request& request, http::ResponseWriter writer);
  void OpenApi(http::Request& request, http::ResponseWriter writer);

  ServiceOptions options_;
  ServedModel model_;
  engine::Client& client_;
  obs::Registry& registry_;
  const obs::StepLog& step_log_;
  std::vector<ExchangeTable*> tables_;  // by IoThread::index()
  std::unique_ptr<AccessControl> access_;
  std::function<Result<std::string>(const std::string&, int64_t)> read_weights_;
  std::function<Status(const WeightUpdateRequest&)> update_weights_;
  const ExpertRecording expert_record_;
  RequestLog log_;
  GrammarMetrics grammar_metrics_;
  LiveRequests live_;
  ResponseStore responses_;
  const std::string openapi_;  // the document
  SessionTable sessions_;
  // Requests that may wait; at most what the engine was started with. A lone number: relaxed.
  std::atomic<int32_t> max_queued_;
  StepProfile profile_;
  std::atomic<bool> draining_{false};  // a lone flag: relaxed
  // Last: their tasks use everything above. Texts do not wait behind weights.
  std::optional<ThreadPool> text_pool_;
  std::optional<ThreadPool> update_pool_;
};

}  // namespace hayate::api
