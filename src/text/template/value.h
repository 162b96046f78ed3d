#pragma once
// The values that templates compute with: JSON's types plus what Python adds to them in a template
// (undefined, tuples, views, iterators) and the run-time objects of one rendering.
//
// A Value is immutable and cheap to copy (strings, sequences and dicts are shared), so one parsed
// conversation may be rendered by several threads at once. Values of kind kObject point into the
// State of the rendering that made them (objects.h) and never leave it.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace hayate::text::jinja {

struct Object;
struct Sequence;
class Dict;

class Value {
 public:
  enum class Kind { kNone, kUndefined, kBool, kInt, kFloat, kString, kSequence, kDict, kObject };

  Value() = default;  // None
  static Value None() { return {}; }
  // `why` is what an error says when the template needs a real value here.
  static Value Undefined(std::string why);
  static Value Bool(bool value) { return Value(Rep(value)); }
  static Value Int(int64_t value) { return Value(Rep(value)); }
  static Value Float(double value) { return Value(Rep(value)); }
  static Value String(std::string value);
  // Text that the filters `safe` and `escape` have marked. A string in every way, but what `+`
  // joins to it is escaped for HTML first (markupsafe.Markup).
  static Value Markup(std::string value);
  static Value List(std::vector<Value> items);
  static Value Tuple(std::vector<Value> items);
  static Value FromSequence(Sequence sequence);
  static Value FromDict(Dict dict);
  static Value FromObject(Object* object) { return Value(Rep(object)); }

  Kind kind() const { return is_markup() ? Kind::kString : static_cast<Kind>(rep_.index()); }
  bool is_markup() const { return std::holds_alternative<MarkupRep>(rep_); }
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_int() const { return kind() == Kind::kInt; }
  bool is_float() const { return kind() == Kind::kFloat; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_sequence() const { return kind() == Kind::kSequence; }
  bool is_dict() const { return kind() == Kind::kDict; }
  bool is_object() const { return kind() == Kind::kObject; }
  // A bool counts as an integer, as in Python.
  bool is_integral() const { return is_int() || is_bool(); }
  bool is_number() const { return is_integral() || is_float(); }

  // Each accessor requires its kind.
  const std::string& undefined_reason() const { return *std::get<UndefinedRep>(rep_).why; }
  bool as_bool() const { return std::get<bool>(rep_); }
  int64_t as_int() const { return is_bool() ? as_bool() : std::get<int64_t>(rep_); }
  double as_double() const {
    return is_float() ? std::get<double>(rep_) : static_cast<double>(as_int());
  }
  const std::string& string() const {
    const auto* markup = std::get_if<MarkupRep>(&rep_);
    return markup != nullptr ? *markup->text : *std::get<StringRef>(rep_);
  }
  const Sequence& sequence() const { return *std::get<SequenceRef>(rep_); }
  const std::shared_ptr<const Sequence>& sequence_ref() const {
    return std::get<SequenceRef>(rep_);
  }
  const Dict& dict() const { return *std::get<DictRef>(rep_); }
  Object& object() const { return *std::get<Object*>(rep_); }

  // Python's truth: empty text and containers, zero, None and undefined are false.
  bool truthy() const;
  // Levels of containers: 0 for a scalar, 1 for a flat list.
  int depth() const;
  // "str", "list", "dict", "NoneType": Python's name, for messages.
  std::string_view type_name() const;

 private:
  struct UndefinedRep {
    std::shared_ptr<const std::string> why;
  };
  using StringRef = std::shared_ptr<const std::string>;
  struct MarkupRep {
    StringRef text;
  };
  using SequenceRef = std::shared_ptr<const Sequence>;
  using DictRef = std::shared_ptr<const Dict>;
  // In the order of Kind; marked text last.
  using Rep = std::variant<std::monostate, UndefinedRep, bool, int64_t, double, StringRef,
                           SequenceRef, DictRef, Object*, MarkupRep>;

  explicit Value(Rep rep) : rep_(std::move(rep)) {}
  Rep rep_;
};

// What Python type a sequence stands for. All are materialised; the type decides what may be done.
enum class SequenceType {
  kList,
  kTuple,
  kRange,
  kView,      // dict.keys() and its like: a length, no index
  kIterator,  // result of map, select, reverse…: neither length nor index, always true
};

struct Sequence {
  SequenceType type = SequenceType::kList;
  std::vector<Value> items;
  std::string label;  // how ranges, views and iterators print: "range(0, 3)", "dict_keys"
  int depth = 1;      // set by Value::FromSequence
};

// Insertion-ordered, with scalar keys. Mutable only until Value::FromDict freezes it.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  Dict() = default;
  Dict(std::initializer_list<std::pair<std::string, Value>> entries);

  // Python's rule: a key that is there keeps its place and gets the new value.
  void Set(Value key, Value value);
  void Set(std::string key, Value value) { Set(Value::String(std::move(key)), std::move(value)); }

  const Value* Find(std::string_view key) const;
  // Any scalar key; None for keys that cannot be in a dict.
  const Value* Find(const Value& key) const;

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  int depth() const { return depth_; }

 private:
  static constexpr size_t kNotFound = static_cast<size_t>(-1);
  // Below this many entries a scan beats the hash index.
  static constexpr size_t kIndexFrom = 9;

  size_t IndexOf(std::string_view key) const;
  size_t IndexOf(const Value& key) const;

  std::vector<Entry> entries_;
  // Views into the key strings, which the shared Values keep alive.
  std::unordered_map<std::string_view, size_t> string_index_;
  int depth_ = 1;
};

// True for the kinds a dict accepts as keys.
bool IsScalar(const Value& value);
// False for what Python refuses to look up in a dict.
bool IsHashable(const Value& value);
// Python's == between scalars: 1 == 1.0 == True. False when either is no scalar.
bool ScalarEqual(const Value& a, const Value& b);

}  // namespace hayate::text::jinja
