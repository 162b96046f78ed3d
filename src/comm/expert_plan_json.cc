#include "comm/expert_plan_json.h"

#include <simdjson.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/json_writer.h"

namespace hayate::comm {
namespace {

// [[n, n, …], …] with every n in [0, limit].
template <typename Number>
Status ReadLayers(std::string_view name, const simdjson::dom::element& element, int64_t limit,
                  std::vector<std::vector<Number>>& layers) {
  simdjson::dom::array outer;
  if (element.get(outer) != simdjson::SUCCESS) {
    return Error(ErrorCode::kDataLoss, "{} is no array of layers", name);
  }
  for (const simdjson::dom::element row : outer) {
    const size_t layer = layers.size();
    if (layer == kMaxPlanLayers) {
      return Error(ErrorCode::kDataLoss, "{} has more than {} layers", name, kMaxPlanLayers);
    }
    simdjson::dom::array inner;
    if (row.get(inner) != simdjson::SUCCESS) {
      return Error(ErrorCode::kDataLoss, "{}[{}] is no array", name, layer);
    }
    std::vector<Number>& numbers = layers.emplace_back();
    for (const simdjson::dom::element item : inner) {
      int64_t number = 0;
      if (item.get(number) != simdjson::SUCCESS || number < 0 || number > limit) {
        return Error(ErrorCode::kDataLoss, "{}[{}][{}] is no integer from 0 to {}", name, layer,
                     numbers.size(), limit);
      }
      if (std::ssize(numbers) == kMaxPlanExperts) {
        return Error(ErrorCode::kDataLoss, "{}[{}] has more than {} entries", name, layer,
                     kMaxPlanExperts);
      }
      numbers.push_back(static_cast<Number>(number));
    }
  }
  if (layers.empty()) return Error(ErrorCode::kDataLoss, "{} has no layers", name);
  return OkStatus();
}

// Far beyond any server's life, and sums of it fit.
constexpr int64_t kMaxCount = int64_t{1} << 46;

}  // namespace

Status ReadExpertPlan(std::string_view json, ExpertPlan& plan) {
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  const simdjson::error_code code = parser.parse(json.data(), json.size()).get(root);
  if (code != simdjson::SUCCESS) {
    return Error(ErrorCode::kDataLoss, "no JSON object: {}", simdjson::error_message(code));
  }
  plan.physical_to_logical.clear();
  plan.logical_count.clear();
  simdjson::dom::element field;
  if (root["physical_to_logical_map"].get(field) == simdjson::SUCCESS) {
    return ReadLayers("physical_to_logical_map", field, kMaxPlanExperts, plan.physical_to_logical);
  }
  if (root["logical_count"].get(field) == simdjson::SUCCESS) {
    return ReadLayers("logical_count", field, kMaxCount, plan.logical_count);
  }
  return Error(ErrorCode::kDataLoss, "neither physical_to_logical_map nor logical_count is there");
}

std::string WriteExpertCounts(std::span<const int64_t> counts, int num_experts) {
  std::string out;
  JsonWriter writer(out);
  writer.BeginObject();
  writer.Key("logical_count");
  writer.BeginArray();
  const auto width = static_cast<size_t>(num_experts);
  for (size_t begin = 0; begin < counts.size(); begin += width) {
    writer.BeginArray();
    for (const int64_t count : counts.subspan(begin, width)) writer.Int(count);
    writer.EndArray();
  }
  writer.EndArray();
  writer.EndObject();
  return out;
}

}  // namespace hayate::comm
