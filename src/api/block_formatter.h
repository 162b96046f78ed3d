#pragma once
// What the surfaces share whose answers are a row of blocks (thinking, text, calls), each begun and
// ended by events of its own: Responses and Messages. One choice.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/formatter.h"

namespace hayate::api {

struct AnswerBlock {
  text::AnswerPart kind = text::AnswerPart::kContent;  // kCallName stands for a call as a whole
  std::string name;                                    // a call's
  std::string text;                                    // thinking, content, or a call's arguments
  int32_t call = -1;                                   // a call's number
  std::vector<TokenLogprob> scores;                    // of content
};

class BlockFormatter : public Formatter {
 public:
  explicit BlockFormatter(const AnswerHead& head) : head_(head) {}

  void Delta(const ChoiceView& view, const ChoiceDelta& delta, const Usage& usage,
             std::string& out) override;
  void Gather(const ChoiceView& view, ChoiceDelta delta) override;

 protected:
  // What is new in a block.
  struct Piece {
    std::string_view text;
    const std::vector<TokenLogprob>* scores = nullptr;  // null: none
  };
  // Events of the block at `index`, the last of blocks(). Its text holds all pieces so far.
  virtual void BeginBlock(size_t index, const AnswerBlock& block, std::string& out) = 0;
  virtual void ExtendBlock(size_t index, const AnswerBlock& block, const Piece& piece,
                           std::string& out) = 0;
  virtual void EndBlock(size_t index, const AnswerBlock& block, std::string& out) = 0;

  const AnswerHead& head() const { return head_; }
  const std::vector<AnswerBlock>& blocks() const { return blocks_; }
  // How the answer ended; once it has.
  const ChoiceEnd& end() const { return end_; }
  // The answer was cut: the last block may be, too.
  bool cut(size_t index) const {
    return index + 1 == blocks_.size() && end_.reason != FinishReason::kStop;
  }

 private:
  // `out` null: nobody follows the answer while it grows.
  void Take(const ChoiceView& view, const ChoiceDelta& delta, std::string* out);
  void TakePart(const text::AnswerEvent& event, const std::vector<TokenLogprob>* scores,
                std::string* out);
  void CloseBlock(std::string* out);

  AnswerHead head_;
  std::vector<AnswerBlock> blocks_;
  bool open_ = false;  // the last block may grow
  ChoiceEnd end_;
};

}  // namespace hayate::api
