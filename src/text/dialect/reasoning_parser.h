#pragma once
// Thinking between two markers at the head of an answer; what follows goes to the next parser.

#include <memory>
#include <string>
#include <vector>

#include "text/dialect/answer_parser.h"

namespace hayate::text {

class ReasoningParser final : public AnswerParser {
 public:
  // `next` takes what comes after the thinking; null: it is content as it stands.
  ReasoningParser(const AnswerFormat& format, std::unique_ptr<AnswerParser> next);

  void Feed(std::string_view text, std::vector<AnswerEvent>& events) override;
  void Finish(std::vector<AnswerEvent>& events) override;
  bool reasoning() const override { return place_ == Place::kInside; }

 private:
  enum class Place : uint8_t {
    kStart,   // white space and the begin marker may come
    kInside,  // until the end marker
    kGap,     // white space behind the end marker is dropped
    kAfter,
  };

  void PushStart();
  void PushInside(std::vector<AnswerEvent>& events);
  void Think(std::string_view text, std::vector<AnswerEvent>& events);
  void PassOn(std::string_view text, std::vector<AnswerEvent>& events);

  const ReasoningDialect& dialect_;
  std::unique_ptr<AnswerParser> next_;
  bool starts_inside_;
  Place place_ = Place::kStart;
  std::string held_;
  std::string blanks_;    // of the thinking: its own only if more follows
  bool thought_ = false;  // the thinking has a character that is not blank
};

}  // namespace hayate::text
