#include "gateway/kube_store.h"

#include <simdjson.h>

#include <charconv>
#include <optional>

#include "base/error.h"
#include "gateway/own_routes.h"

namespace hayate::gateway {
namespace {

using simdjson::dom::element;

std::string_view Text(const element& object, std::string_view pointer) {
  std::string_view text;
  return object.at_pointer(pointer).get(text) == simdjson::SUCCESS ? text : std::string_view();
}

std::string EscapeQuery(std::string_view text) {
  std::string out;
  for (char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      out.push_back(c);
    } else {
      fmt::format_to(std::back_inserter(out), "%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::optional<WorkerSpec> SpecOf(std::string_view address, int64_t port, WorkerRole role) {
  if (address.empty() || port < 1 || port > 65535) return std::nullopt;
  const bool v6 = address.find(':') != std::string_view::npos;
  auto url = NormaliseWorkerUrl(v6 ? fmt::format("http://[{}]:{}", address, port)
                                   : fmt::format("http://{}:{}", address, port));
  if (!url.ok()) return std::nullopt;
  return WorkerSpec{.url = std::move(url).value(), .role = role};
}

int BootstrapPort(const element& object, const std::string& annotation) {
  element annotations;
  std::string_view text;
  if (object.at_pointer("/metadata/annotations").get(annotations) != simdjson::SUCCESS ||
      annotations[annotation].get(text) != simdjson::SUCCESS) {
    return 0;
  }
  int port = 0;
  std::from_chars(text.data(), text.data() + text.size(), port);
  return port > 0 && port < 65536 ? port : 0;
}

std::vector<WorkerSpec> WorkersOfPod(const element& pod, const KubeOptions& options,
                                     WorkerRole role) {
  if (!Text(pod, "/metadata/deletionTimestamp").empty()) return {};
  bool ready = false;
  simdjson::dom::array conditions;
  if (pod.at_pointer("/status/conditions").get(conditions) == simdjson::SUCCESS) {
    for (const element& condition : conditions) {
      ready =
          ready || (Text(condition, "/type") == "Ready" && Text(condition, "/status") == "True");
    }
  }
  if (!ready) return {};
  auto spec = SpecOf(Text(pod, "/status/podIP"), options.port, role);
  if (!spec) return {};
  spec->bootstrap_port = BootstrapPort(pod, options.bootstrap_annotation);
  return {std::move(*spec)};
}

std::vector<WorkerSpec> WorkersOfSlice(const element& slice, const KubeOptions& options,
                                       WorkerRole role) {
  int64_t port = options.port;
  simdjson::dom::array list;
  if (slice["ports"].get(list) == simdjson::SUCCESS) {
    int64_t first = 0;
    for (const element& entry : list) {
      if (entry["port"].get(first) == simdjson::SUCCESS) break;
    }
    if (first > 0) port = first;
  }
  std::vector<WorkerSpec> workers;
  if (slice["endpoints"].get(list) != simdjson::SUCCESS) return workers;
  for (const element& endpoint : list) {
    bool ready = false;
    const bool known = endpoint.at_pointer("/conditions/ready").get(ready) == simdjson::SUCCESS;
    if (known && !ready) continue;  // unknown counts as ready, as for kube-proxy
    if (auto spec = SpecOf(Text(endpoint, "/addresses/0"), port, role)) {
      workers.push_back(std::move(*spec));
    }
  }
  return workers;
}

}  // namespace

std::string KubeStore::CollectionPath() const {
  const bool pods = options_.objects == KubeOptions::Objects::kPods;
  std::string path = pods ? "/api/v1/" : "/apis/discovery.k8s.io/v1/";
  if (!options_.name_space.empty()) path += "namespaces/" + options_.name_space + "/";
  return path + (pods ? "pods" : "endpointslices");
}

std::string KubeStore::ListPath(const std::string& labels) const {
  return CollectionPath() + "?labelSelector=" + EscapeQuery(labels);
}

std::string KubeStore::WatchPath(const std::string& labels) const {
  return ListPath(labels) +
         "&watch=1&allowWatchBookmarks=true&timeoutSeconds=240&resourceVersion=" +
         EscapeQuery(resource_version_);
}

Status KubeStore::ApplyList(std::string_view json) {
  simdjson::dom::parser parser;
  element root;
  simdjson::dom::array items;
  const simdjson::padded_string padded(json);
  if (parser.parse(padded).get(root) != simdjson::SUCCESS ||
      root["items"].get(items) != simdjson::SUCCESS) {
    return Error(ErrorCode::kDataLoss, "the API server's list is not one");
  }
  workers_.clear();
  resource_version_ = Text(root, "/metadata/resourceVersion");
  for (const element& item : items) {
    workers_[std::string(Text(item, "/metadata/uid"))] =
        options_.objects == KubeOptions::Objects::kPods ? WorkersOfPod(item, options_, role_)
                                                        : WorkersOfSlice(item, options_, role_);
  }
  return OkStatus();
}

KubeStore::Applied KubeStore::ApplyEvent(std::string_view line) {
  simdjson::dom::parser parser;
  element root;
  element object;
  const simdjson::padded_string padded(line);
  if (parser.parse(padded).get(root) != simdjson::SUCCESS ||
      root["object"].get(object) != simdjson::SUCCESS) {
    return Applied::kListAgain;
  }
  const std::string_view type = Text(root, "/type");
  if (type == "ERROR") return Applied::kListAgain;
  resource_version_ = Text(object, "/metadata/resourceVersion");
  if (type == "BOOKMARK") return Applied::kUnchanged;
  const std::string uid(Text(object, "/metadata/uid"));
  std::vector<WorkerSpec> now;
  if (type != "DELETED") {
    now = options_.objects == KubeOptions::Objects::kPods ? WorkersOfPod(object, options_, role_)
                                                          : WorkersOfSlice(object, options_, role_);
  }
  std::vector<WorkerSpec>& before = workers_[uid];
  const bool changed = before != now;
  before = std::move(now);
  if (before.empty()) workers_.erase(uid);
  return changed ? Applied::kChanged : Applied::kUnchanged;
}

std::vector<WorkerSpec> KubeStore::Workers() const {
  std::vector<WorkerSpec> all;
  for (const auto& [uid, workers] : workers_) all.insert(all.end(), workers.begin(), workers.end());
  return all;
}

}  // namespace hayate::gateway
