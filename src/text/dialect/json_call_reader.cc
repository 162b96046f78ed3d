// {"name": "f", "arguments": {…}}: members in any order. The arguments pass through as they are
// written once the name is known.

#include "text/dialect/call_reader.h"
#include "text/dialect/json_scanner.h"
#include "text/dialect/marker_search.h"

namespace hayate::text {
namespace {

class JsonCallReader final : public CallReader {
 public:
  Step Push(char byte, CallSink& sink) override {
    const bool key_begins =
        place_ == Place::kBetween && scanner_.depth() == 1 && scanner_.expects_key() && byte == '"';
    const bool value_begins = place_ == Place::kColon && scanner_.expects_value() && !IsBlank(byte);
    const JsonScanner::Step step = scanner_.Push(byte);
    if (step == JsonScanner::Step::kBad) return Step::kBad;

    if (key_begins) {
      place_ = Place::kKey;
      key_.clear();
    } else if (place_ == Place::kKey) {
      if (scanner_.in_string()) {
        if (key_.size() < kMaxKey) key_ += byte;
      } else {
        place_ = Place::kColon;
      }
    } else if (value_begins) {
      place_ = Place::kValue;
      BeginMember(byte);
    }
    if (place_ == Place::kValue) {
      // A number ends with the byte after it.
      const bool closed =
          scanner_.depth() == 0 || (scanner_.depth() == 1 && !scanner_.after_value());
      const bool ends_before = !value_begins && closed && first_ != '{' && first_ != '[' &&
                               first_ != '"' && (byte == ',' || byte == '}');
      if (!ends_before && !Take(byte, sink)) return Step::kReject;
      const bool ends = ends_before || (scanner_.depth() <= 1 && scanner_.after_value());
      if (ends && !EndMember(sink)) return Step::kReject;
    }
    if (step != JsonScanner::Step::kDone) return Step::kMore;
    if (begun_) return Step::kDone;
    if (!has_name_) return Step::kReject;
    sink.Begin(name_);
    sink.Arguments(arguments_.empty() ? "{}" : arguments_);
    return Step::kDone;
  }

 private:
  enum class Place : uint8_t { kBetween, kKey, kColon, kValue };
  enum class Member : uint8_t { kName, kArguments, kOther };
  static constexpr size_t kMaxKey = 64;

  void BeginMember(char byte) {
    first_ = byte;
    value_.clear();
    member_ = Member::kOther;
    if (key_ == "name" && !has_name_) member_ = Member::kName;
    if ((key_ == "arguments" || key_ == "parameters") && !has_arguments_) {
      member_ = Member::kArguments;
      has_arguments_ = true;
    }
  }

  bool Take(char byte, CallSink& sink) {
    if (member_ == Member::kOther) return true;
    if (member_ == Member::kName && value_.size() > kMaxCallName) return false;
    if (member_ == Member::kArguments && first_ == '{' && has_name_) {
      if (!begun_) {
        begun_ = true;
        sink.Begin(name_);
      }
      sink.Arguments({&byte, 1});
      return true;
    }
    value_ += byte;
    return true;
  }

  bool EndMember(CallSink& sink) {
    place_ = Place::kBetween;
    if (member_ == Member::kName) {
      bool ok = false;
      name_ = DecodeJsonString(value_, ok);
      has_name_ = ok && sink.Knows(name_);
      return has_name_;
    }
    if (member_ != Member::kArguments || begun_) return true;
    arguments_ = value_;
    if (first_ == '"') {
      // Some models write the object as a string of JSON.
      bool ok = false;
      arguments_ = DecodeJsonString(value_, ok);
      return ok && arguments_.starts_with('{') && IsJsonValue(arguments_);
    }
    if (arguments_ == "null") arguments_ = "{}";
    return arguments_.starts_with('{');
  }

  JsonScanner scanner_;
  Place place_ = Place::kBetween;
  Member member_ = Member::kOther;
  char first_ = 0;  // of the value
  std::string key_, value_, name_, arguments_;
  bool has_name_ = false;
  bool has_arguments_ = false;
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<CallReader> MakeJsonCallReader() { return std::make_unique<JsonCallReader>(); }

}  // namespace hayate::text
