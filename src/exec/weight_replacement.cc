#include "exec/weight_replacement.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace hayate::exec {
namespace {

template <typename T>
Status Differ(std::string_view what, const T& served, const T& wanted) {
  return Error(ErrorCode::kInvalidArgument,
               "the checkpoint is of another model: its {} is {}, the served one's {}", what,
               wanted, served);
}

// What pools and page tables were made for.
bool SamePages(const CacheLayout& a, const CacheLayout& b) {
  const auto same = [](const CacheGroup& x, const CacheGroup& y) {
    return x.kind == y.kind && x.window == y.window && x.ratio == y.ratio &&
           x.page_bytes == y.page_bytes;
  };
  return a.page_tokens == b.page_tokens && std::ranges::equal(a.groups, b.groups, same);
}

}  // namespace

Status CheckSameShape(const models::Model& served, const models::Model& wanted) {
  const models::ModelFacts& a = served.facts();
  const models::ModelFacts& b = wanted.facts();
  if (a.architecture != b.architecture) {
    return Differ("architecture", a.architecture, b.architecture);
  }
  if (a.vocab_size != b.vocab_size) return Differ("vocabulary", a.vocab_size, b.vocab_size);
  if (a.hidden_size != b.hidden_size) return Differ("hidden size", a.hidden_size, b.hidden_size);
  if (a.num_layers != b.num_layers) return Differ("number of layers", a.num_layers, b.num_layers);
  if (a.num_parameters != b.num_parameters) {
    return Differ("number of parameters", a.num_parameters, b.num_parameters);
  }
  if (a.max_context != b.max_context) return Differ("context", a.max_context, b.max_context);
  if (a.eos_ids != b.eos_ids) return Differ("list of end tokens", a.eos_ids, b.eos_ids);
  const bool same_steps = SamePages(served.cache_layout(), wanted.cache_layout()) &&
                          served.workspace_bytes(1, 1) == wanted.workspace_bytes(1, 1) &&
                          served.gives_hidden() == wanted.gives_hidden();
  if (same_steps) return OkStatus();
  return Status(ErrorCode::kInvalidArgument,
                "the checkpoint is of another model: its cache or its steps have another size");
}

Status CheckSameTensors(const weights::Checkpoint& served, const weights::Checkpoint& wanted) {
  const auto refuse = [](std::string_view name, std::string_view what) {
    return Error(
        ErrorCode::kInvalidArgument,
        "the new checkpoint's tensor '{}' {}; weights that are replaced where they lie need "
        "the same tensors",
        name, what);
  };
  for (const auto& [name, info] : served.tensors()) {
    const auto other = wanted.tensors().find(name);
    if (other == wanted.tensors().end()) return refuse(name, "is missing");
    if (other->second.dtype != info.dtype) return refuse(name, "is of another type");
    if (other->second.shape != info.shape) return refuse(name, "has another shape");
  }
  for (const auto& [name, info] : wanted.tensors()) {
    if (!served.Has(name)) return refuse(name, "is none of the served model's");
  }
  return OkStatus();
}

std::unique_ptr<models::Model> WeightReplacement::Load(int rank, const models::LoadOptions& options,
                                                       const models::Model& served) {
  auto loaded = models::LoadModel(checkpoint_, options);
  Status& status = statuses_[static_cast<size_t>(rank)];
  status = loaded.ok() ? CheckSameShape(served, **loaded) : loaded.status();
  meet_.arrive_and_wait();
  if (!outcome().ok()) return nullptr;
  return *std::move(loaded);
}

std::unique_ptr<models::Model> WeightReplacement::LoadInPlace(int rank,
                                                              const models::LoadOptions& options,
                                                              const models::Model& served,
                                                              const weights::Checkpoint& before,
                                                              WeightPlaces& places) {
  const auto load = [&](const weights::Checkpoint& checkpoint) {
    places.Rewind();
    auto loaded = models::LoadModel(checkpoint, options);
    places.FinishLoading();
    return loaded;
  };
  auto loaded = load(checkpoint_);
  Status& status = statuses_[static_cast<size_t>(rank)];
  status = loaded.ok() ? CheckSameShape(served, **loaded) : loaded.status();
  if (status.ok()) status = places.status();
  meet_.arrive_and_wait();
  if (outcome().ok()) return *std::move(loaded);
  loaded = Status(ErrorCode::kUnavailable, "given up");  // lets go of the places
  if (const Status back = load(before).status(); !back.ok()) {
    places.Fail(back.Under("neither the new nor the old weights could be loaded"));
  }
  return nullptr;
}

Status WeightReplacement::outcome() const {
  for (const Status& status : statuses_) RETURN_IF_ERROR(status);
  return OkStatus();
}

}  // namespace hayate::exec
