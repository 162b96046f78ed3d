#pragma once
// The workers that a Kubernetes API server lists: pods by labels, or the EndpointSlices of a
// Service. What the server sends is applied here; the connection is discovery.cc's.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gateway/worker.h"

namespace hayate::gateway {

// One watch: objects with these labels are workers of this role.
struct KubeSelector {
  std::string labels;  // "app=x,tier=y"
  WorkerRole role = WorkerRole::kRegular;
};

struct KubeOptions {
  enum class Objects { kPods, kEndpointSlices };
  std::vector<KubeSelector> selectors;  // empty: no Kubernetes
  Objects objects = Objects::kPods;
  std::string api_server;  // "http://host:port" or https; empty: the pod's own environment
  std::string token_file = "/var/run/secrets/kubernetes.io/serviceaccount/token";
  std::string ca_file = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
  std::string name_space;  // empty: all
  int port = 80;           // of a pod; slices carry their own unless it is set
  std::string bootstrap_annotation = "sglang.ai/bootstrap-port";
};

class KubeStore {
 public:
  KubeStore(const KubeOptions& options, WorkerRole role) : options_(options), role_(role) {}

  // "/api/v1/…/pods?labelSelector=…"; with `watch`, the stream of what changes after the list.
  std::string ListPath(const std::string& labels) const;
  std::string WatchPath(const std::string& labels) const;

  // A whole list replaces everything. kDataLoss when it cannot be read.
  Status ApplyList(std::string_view json);
  enum class Applied { kChanged, kUnchanged, kListAgain };
  // One line of a watch. kListAgain: the server has forgotten our place.
  Applied ApplyEvent(std::string_view line);

  std::vector<WorkerSpec> Workers() const;

 private:
  std::string CollectionPath() const;

  const KubeOptions& options_;
  const WorkerRole role_;
  std::string resource_version_;
  std::map<std::string, std::vector<WorkerSpec>> workers_;  // by the object's uid
};

}  // namespace hayate::gateway
