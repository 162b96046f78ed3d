#pragma once
// Text to token ids and back, bit-exact with the Hugging Face `tokenizers` library.
// A Tokenizer is immutable: one object serves every thread of the process.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace hayate::text {

// Whether to put the model's own prefix and suffix (BOS, EOS) around the text.
enum class AddBosEos { kYes, kNo };
// What "<|im_end|>" in the text means: the control token, or ten ordinary characters. Text from
// untrusted users that a chat template has not escaped should be kAsText.
enum class SpecialTokens { kParse, kAsText };
enum class SkipSpecial { kYes, kNo };

struct EncodeOptions {
  AddBosEos add_bos_eos = AddBosEos::kYes;
  SpecialTokens special_tokens = SpecialTokens::kParse;
};

class Tokenizer {
 public:
  // Longer texts are kPayloadTooLarge. One token covers at least one byte in practice, so this also
  // bounds the ids of one call.
  static constexpr size_t kMaxTextBytes = size_t{16} << 20;
  static constexpr size_t kMaxVocabSize = size_t{1} << 21;

  // Fails with kInvalidArgument when ids are out of range or a pattern does not compile.
  static Result<std::shared_ptr<const Tokenizer>> Create(TokenizerSpec spec);
  ~Tokenizer();

  // `text` is UTF-8; anything else is kInvalidArgument with the offset of the first bad byte.
  Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options = {}) const;

  // Encode gives no fewer ids than this, whatever its options; 0 where no bound is known. One pass
  // over the bytes: a refusal that need not wait for Encode.
  size_t MinIds(std::string_view text) const;

  // The whole text of `ids`. Bytes that are no UTF-8 become U+FFFD, one for each maximal run that
  // could have begun a character. Ids outside the vocabulary give nothing. See Detokenizer for
  // streams.
  std::string Decode(std::span<const int32_t> ids, SkipSpecial skip) const;

  // The bytes that a token adds to the text (" the", "\n", a part of a character, "<|im_end|>");
  // empty for unused and unknown ids. Lives as long as the tokenizer.
  std::string_view TokenBytes(int32_t id) const;
  bool IsSpecial(int32_t id) const;
  // The added token with this content, else the token whose TokenBytes these are.
  std::optional<int32_t> FindToken(std::string_view bytes) const;

  // One past the largest id.
  int32_t vocab_size() const;
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  // What AddBosEos::kYes puts in front of and behind a text.
  std::span<const int32_t> prefix_ids() const;
  std::span<const int32_t> suffix_ids() const;
  // The first token of a text loses one leading space (Llama 2).
  bool strips_leading_space() const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

}  // namespace hayate::text
