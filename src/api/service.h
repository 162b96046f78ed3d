#pragma once
// The API: routes, authentication, and the work that is no text generation. Called on the http
// threads.

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/exchange_table.h"
#include "api/live_requests.h"
#include "api/response_store.h"
#include "api/served_model.h"
#include "base/thread_pool.h"
#include "engine/client.h"
#include "http/server.h"
#include "obs/metrics.h"

namespace hayate::api {

struct ServiceOptions {
  std::string api_key;  // empty: anybody may call
  bool enable_metrics = false;
  int32_t max_queued_requests = 1024;
  int num_text_threads = 1;
  size_t max_text_tasks = 4096;
};

class Service {
 public:
  // One exchange table per http thread. Client, registry and threads outlive the service.
  Service(ServiceOptions options, ServedModel model, engine::Client& client,
          obs::Registry& registry, std::vector<ExchangeTable*> tables);
  ~Service();
  // Waits for the text pool and the grammar compiler; their results no longer reach a client. The
  // server must have stopped calling Handle, and the engine must have stopped; the exchange tables
  // must still be there.
  void Stop() {
    text_pool_.reset();
    model_.grammars.reset();
  }

  void Handle(http::Request& request, http::ResponseWriter writer);

  // From here on /health says 503: load balancers look elsewhere.
  void BeginDraining() { draining_.store(true, std::memory_order_relaxed); }

 private:
  using Route = void (Service::*)(http::Request&, http::ResponseWriter);
  struct RouteEntry {
    std::string_view method;
    std::string_view path;  // may hold "{id}", one segment; or end with "{path}", the rest
    Route route;
    bool open;  // answers without a key
  };
  static const std::vector<RouteEntry>& Routes();
  static std::string RenderOpenApi();

  // Stands for the key that came with the request.
  static uint64_t OwnerOf(const http::Request& request);
  bool Authorised(const http::Request& request) const;
  bool KnowsModel(std::string_view name) const;
  // Answers 404 or 405.
  void RefuseRoute(const http::Request& request, http::ResponseWriter& writer) const;

  void ChatCompletions(http::Request& request, http::ResponseWriter writer);
  void Completions(http::Request& request, http::ResponseWriter writer);
  void Generate(http::Request& request, http::ResponseWriter writer);
  void Responses(http::Request& request, http::ResponseWriter writer);
  void Messages(http::Request& request, http::ResponseWriter writer);
  void HealthGenerate(http::Request& request, http::ResponseWriter writer);
  // Runs `work` on the text pool and answers with what it gives.
  void AnswerFromTextPool(http::Request& request, http::ResponseWriter writer,
                          std::string_view content_type, std::function<Result<std::string>()> work);
  // Text pool: prompts and grammar, handed to the exchange when both are there.
  void PrepareExchange(const GenerationSpec& spec, uint64_t key, ExchangeTable& table);
  // What can be said of a request before any work; OK when it may go on.
  Status CheckStart(const GenerationSpec& spec) const;
  // Registers an answer that is made in the background; false when there was no room for it.
  bool StartBackground(const GenerationSpec& spec, const std::string& id, int64_t created,
                       uint64_t key, ExchangeTable& table);
  void StartGeneration(GenerationSpec spec, const std::vector<std::string>& unknown,
                       http::Request& request, http::ResponseWriter writer);

  void Health(http::Request& request, http::ResponseWriter writer);
  void Models(http::Request& request, http::ResponseWriter writer);
  void ModelInfo(http::Request& request, http::ResponseWriter writer);
  void ServerInfo(http::Request& request, http::ResponseWriter writer);
  void Metrics(http::Request& request, http::ResponseWriter writer);
  void FlushCache(http::Request& request, http::ResponseWriter writer);
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
  std::vector<ExchangeTable*> tables_;  // by IoThread::index()
  LiveRequests live_;
  ResponseStore responses_;
  const std::string openapi_;            // the document
  std::atomic<bool> draining_{false};    // a lone flag: relaxed
  std::optional<ThreadPool> text_pool_;  // last: its tasks use everything above
};

}  // namespace hayate::api
