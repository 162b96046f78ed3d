#pragma once
// Takes a text byte by byte as a compiled grammar reads it and says which tokens may follow.
// xgrammar's matcher shows nothing of its state and counts no characters, so this is one of our own
// on xgrammar's parser and the token masks that its compiler made. One thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "grammar/detail/counted_strings.h"
#include "grammar/detail/token_lengths.h"

namespace xgrammar {
class CompiledGrammar;
}

namespace hayate::grammar::detail {

// The bounds of the strings that a grammar counts, by rule; empty where there are none.
struct CountedRules {
  std::vector<std::optional<LengthBounds>> bounds;
  int32_t least_room = 0;  // the smallest upper bound
};
CountedRules FindCountedRules(const xgrammar::CompiledGrammar& grammar, std::string_view mark);

class TextParser {
 public:
  // False for grammars whose masks depend on more than the parser's states: budgets of tokens or
  // characters, tokens named by id.
  static bool Takes(const xgrammar::CompiledGrammar& grammar);

  // Of a grammar that it takes. What it is given outlives it. May throw, as everything below.
  TextParser(const xgrammar::CompiledGrammar& grammar, const CountedRules& counted,
             const TokenLengths& lengths);
  ~TextParser();

  // Takes the text as one step. False: it does not fit; nothing changed.
  bool Advance(std::string_view text);
  // Takes back the last `steps` texts.
  void Rollback(int32_t steps);
  // What was taken is a whole text of the grammar.
  bool complete() const;
  // The tokens whose text may follow, and the stop tokens where the text is complete. [⌈V/32⌉]
  void WriteMask(std::span<uint32_t> bits);
  // Where the parse stands: from equal keys of one grammar the same texts can go on. False where
  // the key would be too long: a parse nested so deep is seldom met twice.
  bool WriteKey(std::vector<int32_t>& key);

 private:
  class Parser;

  std::unique_ptr<Parser> parser_;
  std::vector<int32_t> lengths_;  // bytes of the texts taken
};

}  // namespace hayate::grammar::detail
