#pragma once
// GPT-OSS channels. An answer is a row of messages:
//
//   <|channel|>analysis<|message|> thinking <|end|><|start|>assistant
//   <|channel|>commentary to=functions.f <|constrain|>json<|message|> arguments <|call|>
//   <|channel|>final<|message|> content <|return|>

#include <memory>
#include <string>
#include <vector>

#include "text/dialect/answer_parser.h"

namespace hayate::text {

class HarmonyParser final : public AnswerParser {
 public:
  // The format outlives the parser.
  explicit HarmonyParser(const AnswerFormat& format) : format_(format) {}

  void Feed(std::string_view text, std::vector<AnswerEvent>& events) override;
  void Finish(std::vector<AnswerEvent>& events) override;
  bool reasoning() const override { return in_body_ && part_ == AnswerPart::kReasoning; }

 private:
  // The header is whole: where does the message go?
  void BeginMessage(std::vector<AnswerEvent>& events);
  void Body(std::string_view text, std::vector<AnswerEvent>& events);

  const AnswerFormat& format_;
  std::string held_;
  std::string header_;
  bool in_body_ = false;
  AnswerPart part_ = AnswerPart::kContent;
  int32_t calls_ = 0;
};

}  // namespace hayate::text
