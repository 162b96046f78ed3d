#include "gateway/worker_facts.h"

#include <simdjson.h>

#include <algorithm>
#include <charconv>

#include "text/prompt_blocks.h"

namespace hayate::gateway {
namespace {

using simdjson::dom::element;

// Whole numbers, also those written as 3.0.
int64_t NumberOf(const element& object, const char* key) {
  int64_t whole = 0;
  double number = 0.0;
  if (object[key].get(whole) == simdjson::SUCCESS) return whole;
  if (object[key].get(number) == simdjson::SUCCESS && number > -9e15 && number < 9e15) {
    return static_cast<int64_t>(number);
  }
  return 0;
}

std::string_view TextOf(const element& object, const char* key) {
  std::string_view text;
  return object[key].get(text) == simdjson::SUCCESS ? text : std::string_view();
}

std::optional<uint64_t> HexOf(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// False when an element is no hash.
bool ReadHashes(const element& root, const char* key, std::vector<uint64_t>& out) {
  simdjson::dom::array list;
  if (root[key].get(list) != simdjson::SUCCESS) return false;
  out.reserve(list.size());
  for (const element& entry : list) {
    std::string_view text;
    if (entry.get(text) != simdjson::SUCCESS) return false;
    const auto hash = HexOf(text);
    if (!hash) return false;
    out.push_back(*hash);
  }
  return true;
}

void AddModel(std::string_view name, WorkerFacts& out) {
  constexpr size_t kMaxModels = 256;
  if (name.empty() || out.models.size() >= kMaxModels) return;
  if (std::find(out.models.begin(), out.models.end(), name) != out.models.end()) return;
  out.models.emplace_back(name);
}

}  // namespace

void ReadServerInfo(std::string_view json, WorkerFacts& out) {
  simdjson::dom::parser parser;
  element root;
  const simdjson::padded_string padded(json);
  if (parser.parse(padded).get(root) != simdjson::SUCCESS || !root.is_object()) return;
  const std::string_view served = TextOf(root, "served_model_name");
  AddModel(served.empty() ? TextOf(root, "model_path") : served, out);
  out.max_total_tokens =
      std::max(NumberOf(root, "max_total_num_tokens"), NumberOf(root, "max_total_tokens"));
  out.max_running_requests = NumberOf(root, "max_running_requests");
  out.dp_size = std::max<int64_t>(1, NumberOf(root, "dp_size"));
  const std::string_view mode = TextOf(root, "disaggregation_mode");
  out.role_known = !mode.empty();
  out.role = mode == "prefill"  ? WorkerRole::kPrefill
             : mode == "decode" ? WorkerRole::kDecode
                                : WorkerRole::kRegular;
}

void ReadModelList(std::string_view json, WorkerFacts& out) {
  simdjson::dom::parser parser;
  element root;
  simdjson::dom::array list;
  const simdjson::padded_string padded(json);
  if (parser.parse(padded).get(root) != simdjson::SUCCESS ||
      root["data"].get(list) != simdjson::SUCCESS) {
    return;
  }
  for (const element& model : list) AddModel(TextOf(model, "id"), out);
}

std::optional<ReportedLoad> ReadLoads(std::string_view json, int dp_rank, int64_t now_ns) {
  simdjson::dom::parser parser;
  element root;
  const simdjson::padded_string padded(json);
  if (parser.parse(padded).get(root) != simdjson::SUCCESS) return std::nullopt;
  simdjson::dom::array ranks;
  if (root["loads"].get(ranks) != simdjson::SUCCESS && root.get(ranks) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  ReportedLoad load{.at_ns = now_ns};
  for (const element& rank : ranks) {
    if (dp_rank >= 0 && NumberOf(rank, "dp_rank") != dp_rank) continue;
    const int64_t waiting = NumberOf(rank, "num_waiting_reqs");
    load.waiting += waiting;
    load.running +=
        std::max(NumberOf(rank, "num_running_reqs"), NumberOf(rank, "num_reqs") - waiting);
    double usage = 0.0;
    if (rank["token_usage"].get(usage) == simdjson::SUCCESS) {
      load.token_usage = std::clamp(std::max(load.token_usage, usage), 0.0, 1.0);
    }
  }
  load.waiting = std::max<int64_t>(load.waiting, 0);
  load.running = std::max<int64_t>(load.running, 0);
  return load;
}

std::optional<CacheChanges> ReadCacheChanges(std::string_view json) {
  simdjson::dom::parser parser;
  element root;
  const simdjson::padded_string padded(json);
  if (parser.parse(padded).get(root) != simdjson::SUCCESS || !root.is_object()) return std::nullopt;
  if (NumberOf(root, "block_bytes") != int64_t{text::kPromptBlockBytes}) return std::nullopt;
  const auto epoch = HexOf(TextOf(root, "epoch"));
  CacheChanges changes;
  if (!epoch || root["next"].get(changes.cursor.next) != simdjson::SUCCESS ||
      root["whole"].get(changes.whole) != simdjson::SUCCESS ||
      root["more"].get(changes.more) != simdjson::SUCCESS ||
      !ReadHashes(root, "held", changes.held) || !ReadHashes(root, "dropped", changes.dropped)) {
    return std::nullopt;
  }
  changes.cursor.epoch = *epoch;
  return changes;
}

}  // namespace hayate::gateway
