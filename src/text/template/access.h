#pragma once
// Reaching into values: attributes, subscripts, slices, iteration.

#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/template/state.h"

namespace hayate::text::jinja {

// object.name: a method, an attribute of a run-time object, or a dict's entry, in this order.
// Undefined when there is none; an error when `object` is undefined itself.
Result<Value> GetAttribute(State& state, const Value& object, std::string_view name);
// object[key]: an entry, and for text keys a method or attribute after that.
Result<Value> GetItem(State& state, const Value& object, const Value& key);
// object[start:stop:step]; each of the three may be null.
Result<Value> GetSlice(State& state, const Value& object, const Value* start, const Value* stop,
                       const Value* step);

// What a loop over `value` visits: a sequence's items, a dict's keys, a text's characters.
Result<std::shared_ptr<const Sequence>> Iterate(State& state, const Value& value);

// The path that filters take as `attribute`: "function.name", 0, "a.1".
class AttributePath {
 public:
  static Result<AttributePath> Parse(const Value& attribute);
  Result<Value> Get(State& state, const Value& value) const;

 private:
  std::vector<Value> parts_;
};

}  // namespace hayate::text::jinja
