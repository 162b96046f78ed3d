// A name, a marker, and the arguments as a JSON object.

#include "text/dialect/call_name.h"
#include "text/dialect/call_reader.h"
#include "text/dialect/json_scanner.h"
#include "text/dialect/marker_search.h"

namespace hayate::text {
namespace {

class NamedCallReader final : public CallReader {
 public:
  explicit NamedCallReader(std::string_view name_end) : name_(name_end) {}

  Step Push(char byte, CallSink& sink) override {
    if (!named_) {
      const Step step = name_.Push(byte);
      if (step != Step::kDone) return step;
      named_ = true;
      return sink.Knows(name_.name()) ? Step::kMore : Step::kReject;
    }
    if (!begun_) {
      if (IsBlank(byte)) return Step::kMore;
      if (byte != '{') return Step::kBad;
    }
    const JsonScanner::Step step = scanner_.Push(byte);
    if (step == JsonScanner::Step::kBad) return Step::kBad;
    if (!begun_) sink.Begin(name_.name());
    begun_ = true;
    sink.Arguments({&byte, 1});
    return step == JsonScanner::Step::kDone ? Step::kDone : Step::kMore;
  }

 private:
  CallName name_;
  JsonScanner scanner_;
  bool named_ = false;
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<CallReader> MakeNamedCallReader(std::string_view name_end) {
  return std::make_unique<NamedCallReader>(name_end);
}

}  // namespace hayate::text
