#pragma once
// Finds tool calls in a text that is still growing, in every dialect but channels. See
// answer_parser.h.
//
//   text ── opener ──▶ between ── call begins ──▶ call ── its end ──▶ between
//    ▲                    │ anything else            │ no call after all: raw text is content
//    └────────────────────┴──────────────────────────┘

#include <memory>
#include <string>
#include <vector>

#include "text/dialect/answer_parser.h"
#include "text/dialect/call_reader.h"

namespace hayate::text {

class ToolParser final : public AnswerParser, private CallSink {
 public:
  // The format outlives the parser; it names a tool dialect.
  explicit ToolParser(const AnswerFormat& format);

  void Feed(std::string_view text, std::vector<AnswerEvent>& events) override;
  void Finish(std::vector<AnswerEvent>& events) override;
  bool reasoning() const override { return false; }

 private:
  enum class Place : uint8_t { kStart, kText, kBetween, kCall };

  bool Knows(std::string_view name) const override;
  bool IsString(std::string_view name, std::string_view parameter) const override;
  void Begin(std::string_view name) override;
  void Arguments(std::string_view json) override;

  void PushStart(char byte);
  void PushText(char byte);
  void PushBetween(char byte);
  void PushCall(char byte);
  void Push(char byte);
  // What looked like a call is text.
  void GiveUp();
  void Content(std::string_view text);
  bool CallBegins(std::string_view held) const;
  std::unique_ptr<CallReader> MakeReader(std::string_view held) const;

  const AnswerFormat& format_;
  const ToolDialect& dialect_;
  Place place_ = Place::kStart;
  std::string held_;    // of a marker that is not complete
  std::string raw_;     // since the opener or the last call: content, if no call follows
  std::string blanks_;  // white space that is content only if content follows
  std::unique_ptr<CallReader> reader_;
  std::vector<AnswerEvent>* events_ = nullptr;  // of the Feed under way
  int32_t calls_ = 0;
  bool call_begun_ = false;
  bool after_call_ = false;  // no content since
};

}  // namespace hayate::text
