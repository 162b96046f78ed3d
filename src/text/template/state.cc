#include "text/template/state.h"

#include "base/error.h"
#include "text/template/objects.h"

namespace hayate::text::jinja {

State::State(const RenderOptions& options) : options_(options) {}
State::~State() = default;

Status State::Step(int64_t count) {
  steps_ += count;
  if (steps_ <= options_.limits.max_steps) return OkStatus();
  return Error(ErrorCode::kInvalidArgument, "the template ran for more than {} steps",
               options_.limits.max_steps);
}

Status State::Charge(size_t bytes) {
  memory_bytes_ += bytes;
  if (memory_bytes_ <= options_.limits.max_memory_bytes) return OkStatus();
  return Error(ErrorCode::kInvalidArgument, "the template made more than {} bytes of values",
               options_.limits.max_memory_bytes);
}

Status State::CheckStringSize(size_t bytes) const {
  if (bytes <= options_.limits.max_output_bytes) return OkStatus();
  return Error(ErrorCode::kInvalidArgument, "the template made a text of more than {} bytes",
               options_.limits.max_output_bytes);
}

Result<Value> State::NewString(std::string text) {
  RETURN_IF_ERROR(CheckStringSize(text.size()));
  // The fixed part stands for the shared block; steps bound the time that copying takes.
  RETURN_IF_ERROR(Charge(text.size() + 64));
  RETURN_IF_ERROR(Step(static_cast<int64_t>(text.size() / 256)));
  return Value::String(std::move(text));
}

Result<Value> State::NewList(std::vector<Value> items) {
  return NewSequence({.type = SequenceType::kList, .items = std::move(items), .label = {}});
}

Result<Value> State::NewTuple(std::vector<Value> items) {
  return NewSequence({.type = SequenceType::kTuple, .items = std::move(items), .label = {}});
}

Result<Value> State::NewSequence(Sequence sequence) {
  RETURN_IF_ERROR(Charge(sequence.items.size() * sizeof(Value) + 96));
  RETURN_IF_ERROR(Step(static_cast<int64_t>(sequence.items.size() / 8)));
  Value value = Value::FromSequence(std::move(sequence));
  if (value.depth() <= kMaxValueDepth) return value;
  return Error(ErrorCode::kInvalidArgument, "a list is nested more than {} deep", kMaxValueDepth);
}

Result<Value> State::NewDict(Dict dict) {
  RETURN_IF_ERROR(Charge(dict.size() * 4 * sizeof(Value) + 160));
  RETURN_IF_ERROR(Step(static_cast<int64_t>(dict.size() / 8)));
  Value value = Value::FromDict(std::move(dict));
  if (value.depth() <= kMaxValueDepth) return value;
  return Error(ErrorCode::kInvalidArgument, "a dict is nested more than {} deep", kMaxValueDepth);
}

Result<Value> State::NewObject(Object object) {
  RETURN_IF_ERROR(Charge(sizeof(Object) + 64));
  objects_.push_back(std::make_unique<Object>(std::move(object)));
  return Value::FromObject(objects_.back().get());
}

Status DepthGuard::Check() const {
  const int max_depth = state_.options().limits.max_depth;
  if (state_.depth <= max_depth) return OkStatus();
  return Error(ErrorCode::kInvalidArgument, "the template recurses more than {} levels deep",
               max_depth);
}

}  // namespace hayate::text::jinja
