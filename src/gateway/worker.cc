#include "gateway/worker.h"

namespace hayate::gateway {

std::string_view RoleName(WorkerRole role) {
  switch (role) {
    case WorkerRole::kRegular:
      return "regular";
    case WorkerRole::kPrefill:
      return "prefill";
    case WorkerRole::kDecode:
      return "decode";
  }
  return "";
}

std::string_view StateName(WorkerState state) {
  switch (state) {
    case WorkerState::kPending:
      return "pending";
    case WorkerState::kReady:
      return "ready";
    case WorkerState::kDown:
      return "down";
    case WorkerState::kDraining:
      return "draining";
  }
  return "";
}

std::string NameOf(const WorkerSpec& spec) {
  return spec.dp_rank < 0 ? spec.url : spec.url + "@" + std::to_string(spec.dp_rank);
}

}  // namespace hayate::gateway
