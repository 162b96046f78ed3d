#include "text/detail/id_bound.h"

#include <algorithm>
#include <optional>

namespace hayate::text {
namespace {

// Characters shrink when they are composed: three jamo of 9 bytes are a syllable of 3, and some
// letters are replaced by others of a third of their bytes. No text shrinks by more than both.
constexpr size_t kCanonicalShrink = 9;

// By how much a step can shorten a text; none where that has no limit.
std::optional<size_t> Shrink(const SubstituteText& step) {
  if (step.to.size() < step.from.size()) return std::nullopt;
  return 1;
}
std::optional<size_t> Shrink(const UnicodeForm& form) {
  if (form == UnicodeForm::kNfc || form == UnicodeForm::kNfd) return kCanonicalShrink;
  return std::nullopt;
}
std::optional<size_t> Shrink(const PrependText&) { return 1; }
std::optional<size_t> Shrink(const SubstitutePattern&) { return std::nullopt; }
std::optional<size_t> Shrink(const StripSide&) { return std::nullopt; }
std::optional<size_t> Shrink(const EnsurePrefix&) { return 1; }
std::optional<size_t> Shrink(const SplitText& step) {
  if (step.behavior == SplitBehavior::kRemoved) return std::nullopt;
  return 1;
}

template <typename Steps>
std::optional<size_t> ShrinkOfAll(const Steps& steps) {
  size_t product = 1;
  for (const auto& step : steps) {
    const std::optional<size_t> shrink = std::visit([](const auto& s) { return Shrink(s); }, step);
    if (!shrink) return std::nullopt;
    product *= *shrink;
  }
  return product;
}

bool SwallowsSpace(const AddedToken& token) { return token.lstrip || token.rstrip; }

}  // namespace

IdBound::IdBound(const TokenizerSpec& spec, std::span<const std::string> token_bytes) {
  const std::optional<size_t> normalizer = ShrinkOfAll(spec.normalizer);
  const std::optional<size_t> pre_tokenizer = ShrinkOfAll(spec.pre_tokenizer);
  if (!normalizer || !pre_tokenizer) return;
  if (std::ranges::any_of(spec.added_tokens, SwallowsSpace)) return;

  // A byte without a token of its own may be lost.
  size_t longest = 0;
  for (const std::string& bytes : token_bytes) {
    longest = std::max(longest, bytes.size());
    if (bytes.size() == 1) counts_[static_cast<unsigned char>(bytes[0])] = 1;
  }
  if (!spec.bpe.byte_level) {
    const bool all = std::ranges::all_of(counts_, [](uint8_t count) { return count == 1; });
    if (!spec.bpe.byte_fallback || !all) return;
    // In the text a word's marker may be spelled out.
    for (const std::string& token : spec.bpe.tokens) longest = std::max(longest, token.size());
  }
  max_bytes_per_id_ = longest * *normalizer * *pre_tokenizer;
}

size_t IdBound::MinIds(std::string_view text) const {
  if (max_bytes_per_id_ == 0) return 0;
  size_t bytes = 0;
  for (const char c : text) bytes += counts_[static_cast<unsigned char>(c)];
  return bytes / max_bytes_per_id_;
}

}  // namespace hayate::text
