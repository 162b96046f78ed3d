#pragma once
// Where a parse stands, as a key: from equal keys of one grammar the same texts can go on.
// xgrammar's matcher shows nothing of its state, so a parser of its kind runs along with it. One
// thread.

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace xgrammar {
class CompiledGrammar;
}

namespace hayate::grammar::detail {

class ParsePlace {
 public:
  // Null for grammars whose masks depend on more than the parser's states: budgets of tokens or
  // characters, tokens named by id. May throw, as everything below.
  static std::unique_ptr<ParsePlace> Create(const xgrammar::CompiledGrammar& grammar);
  ~ParsePlace();

  // Takes the text as one step. False: it does not fit; nothing changed.
  bool Advance(std::string_view text);
  // Takes back the last `steps` texts.
  void Rollback(int32_t steps);
  // False where the key would be too long: a parse nested so deep is seldom met twice.
  bool WriteKey(std::vector<int32_t>& key);

 private:
  class Parser;
  explicit ParsePlace(std::unique_ptr<Parser> parser);

  std::unique_ptr<Parser> parser_;
  std::vector<int32_t> lengths_;  // bytes of the texts taken
};

}  // namespace hayate::grammar::detail
