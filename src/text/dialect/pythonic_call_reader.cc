// name(key=literal, …): the arguments are turned into JSON when the call is whole.

#include "text/dialect/call_name.h"
#include "text/dialect/call_reader.h"
#include "text/dialect/python_literal.h"

namespace hayate::text {
namespace {

class PythonicCallReader final : public CallReader {
 public:
  Step Push(char byte, CallSink& sink) override {
    if (!named_) {
      const Step step = name_.Push(byte);
      if (step != Step::kDone) return step;
      named_ = true;
      return sink.Knows(name_.name()) ? Step::kMore : Step::kReject;
    }
    if (quote_ != 0) {
      if (escaped_) {
        escaped_ = false;
      } else if (byte == '\\') {
        escaped_ = true;
      } else if (byte == quote_) {
        quote_ = 0;
      }
    } else if (byte == '"' || byte == '\'') {
      quote_ = byte;
    } else if (byte == '(' || byte == '[' || byte == '{') {
      ++depth_;
    } else if (byte == ']' || byte == '}' || byte == ')') {
      if (depth_ == 0) return byte == ')' ? Finish(sink) : Step::kBad;
      --depth_;
    }
    arguments_ += byte;
    return Step::kMore;
  }

 private:
  Step Finish(CallSink& sink) {
    const auto json = KeywordArgumentsAsJson(arguments_);
    if (!json) return Step::kReject;
    sink.Begin(name_.name());
    sink.Arguments(*json);
    return Step::kDone;
  }

  CallName name_{"("};
  bool named_ = false;
  std::string arguments_;
  int depth_ = 0;
  char quote_ = 0;
  bool escaped_ = false;
};

}  // namespace

std::unique_ptr<CallReader> MakePythonicCallReader() {
  return std::make_unique<PythonicCallReader>();
}

}  // namespace hayate::text
