#pragma once
// One sequence's place in a grammar: takes its tokens, says which may come next. Not thread-safe.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "grammar/compiled_grammar.h"
#include "grammar/mask_cache.h"
#include "grammar/mask_kind.h"

namespace hayate::grammar {

class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const CompiledGrammar> grammar);
  ~Matcher();
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;

  // Advances by one token. False: the grammar does not allow it here, nothing changed. A stop token
  // is allowed where the text is complete and ends the match.
  bool Accept(int32_t token);
  // The same for a text, as one step of Rollback.
  bool AcceptText(const std::string& text);
  // Writes the allowed tokens, one bit each; `bits` has vocabulary().mask_words() words, bits past
  // the vocabulary are clear. Call only before the match has ended.
  MaskKind FillMask(std::span<uint32_t> bits);
  // The same from a cache, filled along the way. One cache for all calls of a matcher.
  MaskKind FillMask(std::span<uint32_t> bits, MaskCache& cache);
  // Takes back the last `steps` accepted tokens. No more than were accepted.
  void Rollback(int32_t steps);

  // What was accepted is a whole text of the grammar.
  bool complete() const;
  // A stop token was accepted.
  bool ended() const;

  const CompiledGrammar& grammar() const { return *grammar_; }

 private:
  struct Impl;
  MaskKind FillMaskUnguarded(std::span<uint32_t> bits);
  // The key of the place, empty where there is none. Kept by the matcher.
  std::span<const int32_t> Key(MaskCache& cache);

  std::shared_ptr<const CompiledGrammar> grammar_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hayate::grammar
