#pragma once
// Token ids to text, as they arrive. The text never ends inside a character: bytes that may still
// become one wait for the next token. All deltas of a sequence, joined, equal Tokenizer::Decode of
// all its ids. One object per sequence; not thread-safe.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace hayate::text {

// Where the ids stand. At the start of a text, tokenizers of Llama 2's kind drop the space in front
// of the first word; in the middle (an answer after its prompt) that space belongs to the text.
enum class TextPosition { kStart, kMiddle };

struct DetokenizeOptions {
  SkipSpecial skip_special = SkipSpecial::kYes;
  TextPosition position = TextPosition::kStart;
  // Control tokens that show all the same, ascending; outlives the detokenizer. Null: none.
  const std::vector<int32_t>* kept = nullptr;
};

// Repairs a byte stream into UTF-8, chunk by chunk: each maximal prefix of a character that does
// not continue becomes one U+FFFD (Unicode 15, section 3.9, "maximal subpart"). Holds at most 3
// bytes.
class Utf8Repairer {
 public:
  // Appends what is certain to `out`.
  void Push(std::string_view bytes, std::string& out);
  // Appends U+FFFD for a character that never came to its end.
  void Flush(std::string& out);

 private:
  void PushByte(unsigned char byte, std::string& out);

  char pending_[4] = {};
  uint8_t num_pending_ = 0;
  uint8_t num_expected_ = 0;
};

class Detokenizer {
 public:
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, DetokenizeOptions options = {});

  // The text that became certain with these ids; often empty.
  std::string Push(int32_t id) { return Push(std::span(&id, 1)); }
  std::string Push(std::span<const int32_t> ids);
  // What is left at the end of the sequence. The object then starts over.
  std::string Flush();

 private:
  bool Kept(int32_t id) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  DetokenizeOptions options_;
  Utf8Repairer repairer_;
  bool strip_space_ = false;
};

}  // namespace hayate::text
