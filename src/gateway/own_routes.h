#pragma once
// What the gateway answers itself: probes, metrics, the list of models, and the fleet.
//
//   GET  /health /readiness /metrics /v1/models /get_loads /v1/loads /list_workers
//   GET  /workers, /workers/{id}        POST /workers {"url", "api_key", "worker_type", …} → 202
//   DELETE /workers/{id}                POST /workers/{id}/drain
//   POST /add_worker?url=…              POST /remove_worker?url=…      (older routers' forms)
//
// {id} is the number in the list, or the worker's URL, percent-encoded. Removing drains: requests
// under way finish.

#include <functional>

#include "gateway/state.h"
#include "http/server.h"

namespace hayate::gateway {

// `nudge` makes the prober look at once. On an http thread.
void AnswerOwnRoute(State& state, const std::function<void()>& nudge, http::Request& request,
                    http::ResponseWriter writer);

// The body of POST /workers; kInvalidArgument names the field.
Result<WorkerSpec> ParseWorkerSpec(std::string_view json);
// "http[s]://host:port[/base]" without a slash at its end; kInvalidArgument otherwise.
Result<std::string> NormaliseWorkerUrl(std::string_view url);

// Makes the fleet's workers of `source` exactly these: adds what is new, drains what is missing.
void SyncWorkers(Router& router, std::string_view source, const std::vector<WorkerSpec>& specs);

}  // namespace hayate::gateway
