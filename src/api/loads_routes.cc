// Service: what load balancers ask for. The shapes are those that sglang-router and smg read.

#include <algorithm>
#include <string_view>

#include "api/field_reader.h"
#include "api/send_error.h"
#include "api/service.h"
#include "base/error.h"
#include "base/json_writer.h"

namespace hayate::api {
namespace {

constexpr std::string_view kSections[] = {"core", "memory", "queues", "disagg", "spec", "lora"};

struct Sections {
  bool core = true, memory = true, queues = true, disagg = true;
};

// "include=core,memory"; absent, empty or "all": every one.
Result<Sections> ReadSections(std::string_view query) {
  const std::string text = http::QueryValue(query, "include").value_or("all");
  if (text.empty() || text == "all") return Sections{};
  Sections wanted{.core = false, .memory = false, .queues = false, .disagg = false};
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view name = std::string_view(text).substr(begin, end - begin);
    if (std::ranges::find(kSections, name) == std::end(kSections) && name != "all") {
      return InvalidField("include", "'{}' is no section; there are core, memory, queues, disagg",
                          Shown(name));
    }
    wanted.core |= name == "core" || name == "all";
    wanted.memory |= name == "memory" || name == "all";
    wanted.queues |= name == "queues" || name == "all";
    wanted.disagg |= name == "disagg" || name == "all";
    begin = end + 1;
  }
  return wanted;
}

double Share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

void WriteLoad(JsonWriter& json, const engine::EngineLoad& load, const Sections& wanted) {
  const int32_t slots = load.num_running + load.num_free_slots;
  json.Field("dp_rank", 0);
  json.Field("num_running_reqs", load.num_running);
  json.Field("num_waiting_reqs", load.num_waiting);
  json.Field("num_total_reqs", load.num_running + load.num_waiting);
  json.Field("num_used_tokens", load.used_tokens);
  json.Field("num_total_tokens", load.used_tokens);
  json.Field("max_total_num_tokens", load.total_tokens);
  json.Field("max_running_requests", slots);
  json.Field("token_usage", Share(load.used_tokens, load.total_tokens));
  json.Field("gen_throughput", load.gen_throughput);
  json.Field("cache_hit_rate", load.cache_hit_rate);
  json.Field("utilization", Share(load.num_running, slots));
  if (wanted.memory) {
    json.Key("memory");
    json.BeginObject();
    json.Field("token_capacity", load.total_tokens);
    json.Field("used_tokens", load.used_tokens);
    json.Field("evictable_tokens", load.evictable_tokens);
    json.EndObject();
  }
  if (wanted.queues) {
    json.Key("queues");
    json.BeginObject();
    json.Field("waiting", load.num_waiting);
    json.Field("paused", load.paused ? load.num_running + load.num_waiting : 0);
    json.EndObject();
  }
  if (wanted.disagg) {
    json.Key("disaggregation");
    json.BeginObject();
    json.Field("mode", "null");
    json.EndObject();
  }
}

}  // namespace

void Service::Loads(http::Request& request, http::ResponseWriter writer) {
  const auto sections = ReadSections(request.query);
  if (!sections.ok()) return SendError(writer, sections.status());
  const engine::EngineLoad load = client_.load();
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Field("timestamp", UnixSeconds());
  json.Field("dp_rank_count", 1);
  json.Key("loads");
  json.BeginArray();
  json.BeginObject();
  WriteLoad(json, load, *sections);
  json.EndObject();
  json.EndArray();
  json.Key("aggregate");
  json.BeginObject();
  json.Field("total_running_reqs", load.num_running);
  json.Field("total_waiting_reqs", load.num_waiting);
  json.Field("total_reqs", load.num_running + load.num_waiting);
  json.Field("total_tokens", load.used_tokens);
  json.Field("avg_token_usage", Share(load.used_tokens, load.total_tokens));
  json.Field("avg_throughput", load.gen_throughput);
  json.Field("avg_utilization", Share(load.num_running, load.num_running + load.num_free_slots));
  json.EndObject();
  json.EndObject();
  SendJson(writer, body);
}

void Service::LoadOfOld(http::Request&, http::ResponseWriter writer) {
  const engine::EngineLoad load = client_.load();
  std::string body;
  JsonWriter json(body);
  json.BeginArray();
  json.BeginObject();
  json.Field("dp_rank", 0);
  json.Field("num_reqs", load.num_running + load.num_waiting);
  json.Field("num_waiting_reqs", load.num_waiting);
  json.Field("num_tokens", load.used_tokens);
  json.EndObject();
  json.EndArray();
  SendJson(writer, body);
}

}  // namespace hayate::api
