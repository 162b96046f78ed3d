#pragma once
// What workers say of themselves, read leniently: SGLang's and Hayate's forms, old and new. A field
// that is missing or of another type counts as not said.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/worker.h"

namespace hayate::gateway {

// Of /server_info (or /get_server_info).
void ReadServerInfo(std::string_view json, WorkerFacts& out);
// Of /v1/models: appends the ids that are not there yet.
void ReadModelList(std::string_view json, WorkerFacts& out);
// Of /v1/loads, or of the older /get_load: of one data-parallel rank, or summed over them (-1).
std::optional<ReportedLoad> ReadLoads(std::string_view json, int dp_rank, int64_t now_ns);
// Of /v1/cache_events. Nothing when it is not that, or its blocks are not of our size.
std::optional<CacheChanges> ReadCacheChanges(std::string_view json);

}  // namespace hayate::gateway
