#pragma once
// TokenizerSpec: everything that defines a tokenizer, as plain data. tokenizer_json.h and
// tokenizer_gguf.h make one from a model's files; Tokenizer::Create checks it and builds the
// tables.
//
//   text ── added tokens ── normalizer ── pre-tokenizer ── BPE ── prefix/suffix ids ──> ids
//           (cut out first)  (rewrites)    (pieces)        (merges)
//
// The stages and their order are those of the Hugging Face `tokenizers` library, and ids equal its
// ids.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace hayate::text {

// ---- Normalizer steps, applied to each stretch of text between added tokens.

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

// Puts `text` in front of a non-empty stretch.
struct PrependText {
  std::string text;
};

// Replaces every occurrence of one literal string.
struct SubstituteText {
  std::string from;
  std::string to;
};

// Replaces every match of a regular expression.
struct SubstitutePattern {
  std::string pattern;
  std::string to;
};

// Takes white space away.
enum class StripSide { kLeft, kRight, kBoth };

using NormalizerStep =
    std::variant<UnicodeForm, PrependText, SubstituteText, SubstitutePattern, StripSide>;

// ---- Pre-tokenizer steps, each applied to every piece the step before it made.

// What becomes of the text that a pattern matched. "a-b" cut at "-":
enum class SplitBehavior {
  kIsolated,            // a | - | b
  kRemoved,             // a | b
  kMergedWithPrevious,  // a- | b
  kMergedWithNext,      // a | -b
  kContiguous,          // as kIsolated, but neighbouring matches stay together
};

enum class SplitAt { kMatches, kGaps };

struct SplitText {
  std::string pattern;  // as tokenizer.json spells it
  SplitBehavior behavior = SplitBehavior::kIsolated;
  SplitAt at = SplitAt::kMatches;
};

enum class PrefixWhen { kAlways, kStartOfText };

// Puts `prefix` in front of a piece that does not begin with it.
struct EnsurePrefix {
  std::string prefix;
  PrefixWhen when = PrefixWhen::kAlways;
};

using PreTokenizerStep = std::variant<SplitText, EnsurePrefix, SubstituteText>;

// ---- The model.

// `left` followed by `right` may become `result`. Lower ranks merge first; equal ranks from the
// left.
struct MergeRule {
  int32_t left = 0;
  int32_t right = 0;
  int32_t result = 0;
  int32_t rank = 0;
};

struct BpeSpec {
  // Spelling of each token by id; "" where the id is unused. With `byte_level`, spelled in the
  // GPT-2 byte alphabet ("Ġthe" for " the").
  std::vector<std::string> tokens;
  std::vector<MergeRule> merges;
  bool byte_level = false;
  // Characters without a token become their bytes' tokens "<0x0A>".
  bool byte_fallback = false;
  // A piece that is a token becomes it, whatever its merges say.
  bool ignore_merges = false;
  bool fuse_unk = false;
  std::optional<int32_t> unk_id;
};

// A token that is found in the text before anything else happens.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;  // control token: may be skipped when decoding, may be refused in user text
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // swallows the white space on its left
  bool rstrip = false;       // and on its right
  bool normalized = false;   // searched for after normalisation
};

// From token bytes back to text.
struct DecoderSpec {
  // Stands for a space inside tokens, "▁"; "" when there is none (byte-level).
  std::string space_marker;
  // The text's first token has gained one space in front, which is taken away again.
  bool strip_leading_space = false;
};

struct TokenizerSpec {
  BpeSpec bpe;
  std::vector<AddedToken> added_tokens;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  DecoderSpec decoder;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  // Ids put around the text when special tokens are asked for, usually {bos} and {}.
  std::vector<int32_t> prefix_ids;
  std::vector<int32_t> suffix_ids;
};

}  // namespace hayate::text
