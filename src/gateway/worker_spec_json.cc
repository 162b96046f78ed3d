// ParseWorkerSpec of own_routes.h, apart because of simdjson.

#include <simdjson.h>

#include "base/error.h"
#include "gateway/own_routes.h"

namespace hayate::gateway {

Result<WorkerSpec> ParseWorkerSpec(std::string_view json) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  const simdjson::padded_string padded(json);
  if (parser.parse(padded).get(root) != simdjson::SUCCESS || !root.is_object()) {
    return Error(ErrorCode::kInvalidArgument, "the body must be a JSON object with \"url\"");
  }
  const auto text = [&root](const char* key) {
    std::string_view value;
    return root[key].get(value) == simdjson::SUCCESS ? value : std::string_view();
  };
  WorkerSpec spec;
  auto url = NormaliseWorkerUrl(text("url"));
  if (!url.ok()) return InvalidField("url", "{}", url.status().message());
  spec.url = std::move(url).value();
  spec.api_key = text("api_key");
  if (spec.api_key.find_first_of("\r\n") != std::string::npos) {
    return InvalidField("api_key", "must be one line");
  }
  spec.model = text("model_id");
  const std::string_view role = text("worker_type");
  if (role == "prefill") {
    spec.role = WorkerRole::kPrefill;
  } else if (role == "decode") {
    spec.role = WorkerRole::kDecode;
  } else if (!role.empty() && role != "regular") {
    return InvalidField("worker_type", "must be regular, prefill or decode");
  }
  int64_t port = 0;
  if (root["bootstrap_port"].get(port) == simdjson::SUCCESS) {
    if (port < 1 || port > 65535) return InvalidField("bootstrap_port", "is no port");
    spec.bootstrap_port = static_cast<int>(port);
  }
  return spec;
}

}  // namespace hayate::gateway
