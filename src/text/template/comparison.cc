#include "text/template/comparison.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "text/template/text_search.h"

namespace hayate::text::jinja {
namespace {

Result<bool> SequencesEqual(State& state, const Sequence& a, const Sequence& b) {
  if (&a == &b) return true;
  if (a.type != b.type || a.type == SequenceType::kIterator) return false;
  if (a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal, Equal(state, a.items[i], b.items[i]));
    if (!equal) return false;
  }
  return true;
}

Result<bool> DictsEqual(State& state, const Dict& a, const Dict& b) {
  if (&a == &b) return true;
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.Find(key);
    if (other == nullptr) return false;
    ASSIGN_OR_RETURN(const bool equal, Equal(state, value, *other));
    if (!equal) return false;
  }
  return true;
}

Result<bool> SequenceLess(State& state, const Sequence& a, const Sequence& b) {
  for (size_t i = 0; i < a.items.size() && i < b.items.size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal, Equal(state, a.items[i], b.items[i]));
    if (!equal) return Less(state, a.items[i], b.items[i]);
  }
  return a.items.size() < b.items.size();
}

bool AreOrderedSequences(const Value& a, const Value& b) {
  return a.is_sequence() && b.is_sequence() && a.sequence().type == b.sequence().type &&
         (a.sequence().type == SequenceType::kList || a.sequence().type == SequenceType::kTuple);
}

Status Unordered(const Value& a, const Value& b) {
  for (const Value* operand : {&a, &b}) {
    if (operand->is_undefined()) {
      return Error(ErrorCode::kInvalidArgument, "{}", operand->undefined_reason());
    }
  }
  return Error(ErrorCode::kInvalidArgument, "{} and {} have no order", a.type_name(),
               b.type_name());
}

// Merges the sorted runs [begin, middle) and [middle, end) of `order` through `scratch`.
template <typename Before>
Status Merge(std::vector<size_t>& order, std::vector<size_t>& scratch, size_t begin, size_t middle,
             size_t end, Before before) {
  size_t left = begin, right = middle;
  for (size_t i = begin; i < end; ++i) {
    bool take_right = left == middle;
    if (!take_right && right < end) {
      ASSIGN_OR_RETURN(take_right, before(order[right], order[left]));
    }
    scratch[i] = order[take_right ? right++ : left++];
  }
  std::copy(scratch.begin() + static_cast<ptrdiff_t>(begin),
            scratch.begin() + static_cast<ptrdiff_t>(end),
            order.begin() + static_cast<ptrdiff_t>(begin));
  return OkStatus();
}

}  // namespace

Result<bool> Equal(State& state, const Value& a, const Value& b) {
  RETURN_IF_ERROR(state.Step());
  if (a.is_sequence() && b.is_sequence()) return SequencesEqual(state, a.sequence(), b.sequence());
  if (a.is_dict() && b.is_dict()) return DictsEqual(state, a.dict(), b.dict());
  if (a.is_object() && b.is_object()) return &a.object() == &b.object();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  return ScalarEqual(a, b);
}

Result<bool> Less(State& state, const Value& a, const Value& b) {
  RETURN_IF_ERROR(state.Step());
  if (a.is_string() && b.is_string()) return a.string() < b.string();
  if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int();
  if (a.is_number() && b.is_number()) return a.as_double() < b.as_double();
  if (AreOrderedSequences(a, b)) return SequenceLess(state, a.sequence(), b.sequence());
  return Unordered(a, b);
}

Result<bool> Contains(State& state, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      return Error(ErrorCode::kInvalidArgument, "only text can be in text, not {}",
                   item.type_name());
    }
    RETURN_IF_ERROR(state.Step(static_cast<int64_t>(container.string().size() / 256)));
    return FindText(container.string(), item.string()) != std::string_view::npos;
  }
  const bool is_keys =
      container.is_dict() || (container.is_sequence() && container.sequence().label == "dict_keys");
  if (is_keys && !IsHashable(item)) {
    return Error(ErrorCode::kInvalidArgument, "{} cannot be a dict's key", item.type_name());
  }
  if (container.is_dict()) {
    return container.dict().Find(item) != nullptr;
  }
  if (container.is_sequence()) {
    for (const Value& candidate : container.sequence().items) {
      ASSIGN_OR_RETURN(const bool equal, Equal(state, candidate, item));
      if (equal) return true;
    }
    return false;
  }
  if (container.is_undefined()) return false;
  return Error(ErrorCode::kInvalidArgument, "{} contains nothing that 'in' could find",
               container.type_name());
}

Result<bool> ApplyComparison(State& state, Comparison op, const Value& a, const Value& b) {
  const auto negate = [](Result<bool> result) -> Result<bool> {
    if (!result.ok()) return result;
    return !*result;
  };
  switch (op) {
    case Comparison::kEqual:
      return Equal(state, a, b);
    case Comparison::kNotEqual:
      return negate(Equal(state, a, b));
    case Comparison::kIn:
      return Contains(state, b, a);
    case Comparison::kNotIn:
      return negate(Contains(state, b, a));
    case Comparison::kLess:
      return Less(state, a, b);
    case Comparison::kGreater:
      return Less(state, b, a);
    case Comparison::kLessEqual:
    case Comparison::kGreaterEqual:
      break;
  }
  const bool less_equal = op == Comparison::kLessEqual;
  if (a.is_number() && b.is_number() && (a.is_float() || b.is_float())) {
    // NaN is in no order with anything, so ≤ is not the opposite of >.
    return less_equal ? a.as_double() <= b.as_double() : a.as_double() >= b.as_double();
  }
  return negate(less_equal ? Less(state, b, a) : Less(state, a, b));
}

// A bottom-up merge sort: the comparison can fail, and must not be trusted to be consistent.
Result<std::vector<size_t>> SortedOrder(State& state, const std::vector<Value>& keys,
                                        SortDirection direction) {
  const auto before = [&](size_t i, size_t j) {
    return direction == SortDirection::kAscending ? Less(state, keys[i], keys[j])
                                                  : Less(state, keys[j], keys[i]);
  };
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<size_t> scratch(keys.size());
  for (size_t width = 1; width < keys.size(); width *= 2) {
    for (size_t begin = 0; begin + width < keys.size(); begin += 2 * width) {
      const size_t end = std::min(begin + 2 * width, keys.size());
      RETURN_IF_ERROR(Merge(order, scratch, begin, begin + width, end, before));
    }
  }
  return order;
}

}  // namespace hayate::text::jinja
