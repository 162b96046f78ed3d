#pragma once
// What sort, min, max, unique and dictsort compare: an item or attributes of it, letters in one
// case unless case counts.

#include <vector>

#include "base/status.h"
#include "text/template/access.h"
#include "text/template/state.h"

namespace hayate::text::jinja {

enum class CaseRule { kSensitive, kIgnored };

class SortKey {
 public:
  explicit SortKey(CaseRule case_rule) : case_rule_(case_rule) {}
  // From the arguments `case_sensitive` and `attribute` of a filter; both may be null.
  static Result<SortKey> ByAttribute(const Value* case_sensitive, const Value* attribute);
  // For sort: `attribute` may name several, with commas between them. The keys are lists then,
  // which compare even where their items have no order but are equal (None with None).
  static Result<SortKey> ByAttributes(const Value* case_sensitive, const Value* attribute);

  Result<Value> Of(State& state, const Value& item) const;
  Result<std::vector<Value>> OfAll(State& state, const std::vector<Value>& items) const;

 private:
  Result<Value> Fold(State& state, Value value) const;

  CaseRule case_rule_;
  std::vector<AttributePath> paths_;  // none: the item itself
  bool makes_lists_ = false;
};

}  // namespace hayate::text::jinja
