#include "gateway/fan_out.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/json_writer.h"
#include "gateway/error_reply.h"
#include "gateway/lane.h"

namespace hayate::gateway {
namespace {

constexpr size_t kMaxShownBytes = 64 << 10;  // of each answer

struct Part {
  std::string url;
  int status = 502;
  std::string body;
};

// Owned by the handlers of its requests; the last one answers.
struct Gathering {
  explicit Gathering(http::ResponseWriter answer) : writer(std::move(answer)) {}
  ~Gathering() { Answer(); }

  void Answer() {
    int worst = 200;
    std::string body;
    JsonWriter json(body);
    json.BeginObject();
    json.Key("workers");
    json.BeginArray();
    for (const Part& part : parts) {
      worst = std::max(worst, part.status);
      json.BeginObject();
      json.Field("url", part.url);
      json.Field("status", part.status);
      json.Field("body", part.body);
      json.EndObject();
    }
    json.EndArray();
    json.EndObject();
    if (!writer.closed()) {
      writer.Send({.status = worst, .content_type = "application/json"}, body);
    }
  }

  http::ResponseWriter writer;
  std::vector<Part> parts;
};

}  // namespace

void FanOut(Lane& lane, http::Request& request, http::ResponseWriter writer) {
  State& state = lane.state();
  struct Place {
    std::shared_ptr<const WorkerSpec> spec;
    WorkerId id;
    std::shared_ptr<const Target> target;
  };
  std::vector<Place> places;
  {
    std::lock_guard lock(state.mutex);
    for (const auto& worker : state.router.Workers()) {
      if (worker.state != WorkerState::kReady && worker.state != WorkerState::kDraining) continue;
      places.push_back({worker.spec, worker.id, state.targets[worker.id]});
    }
    if (request.path == "/flush_cache") state.router.OnCacheFlushed();
  }
  if (places.empty()) {
    return SendErrorReply(writer,
                          {.status = 503,
                           .code = "no_healthy_workers",
                           .message = "no worker is up",
                           .retry_after_s = 1},
                          {});
  }
  auto gathering = std::make_shared<Gathering>(std::move(writer));
  gathering->parts.resize(places.size());
  const auto body = std::make_shared<const std::string>(std::move(request.body));
  std::string fields;
  AppendRequestFields(request.headers, state.options.headers, lane.NewRequestId("req-"), fields);
  const std::string authorization(request.headers.Find("authorization").value_or(""));
  for (size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    gathering->parts[i].url = place.spec->url;
    http::Client* client = lane.ClientFor(place.id, place.target);
    if (client == nullptr) continue;
    http::ClientRequest out{.method = std::string(request.method),
                            .target = place.target->base_path + std::string(request.path)};
    if (!request.query.empty()) out.target += "?" + std::string(request.query);
    out.raw_fields = fields;
    const std::string key =
        place.spec->api_key.empty() ? authorization : "Bearer " + place.spec->api_key;
    if (!key.empty()) out.raw_fields += "Authorization: " + key + "\r\n";
    out.shared_body = {body, {std::string_view(*body)}};
    client->Fetch(
        std::move(out),
        {.on_head = [gathering, i](int status,
                                   http::HeaderView) { gathering->parts[i].status = status; },
         .on_data =
             [gathering, i](std::string_view bytes) {
               std::string& shown = gathering->parts[i].body;
               shown.append(bytes.substr(0, kMaxShownBytes - shown.size()));
             },
         .on_done =
             [gathering, i](const Status& status) {
               if (!status.ok()) gathering->parts[i].status = 502;
             }});
  }
}

}  // namespace hayate::gateway
