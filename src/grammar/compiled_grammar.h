#pragma once
// A grammar ready for matching against one vocabulary, and the vocabulary itself. Both immutable:
// any thread, any number of matchers at once.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "grammar/grammar_source.h"
#include "text/tokenizer.h"

namespace hayate::grammar {

// The tokens of a model as grammars see them: bytes by id, which ids end an answer, and which ids
// no grammar may produce.
class Vocabulary {
 public:
  struct Options {
    int32_t vocab_size = 0;  // rows of the logits; ids beyond the tokenizer's are never allowed
    std::vector<int32_t> stop_ids;  // allowed where the grammar is complete, and only there
    // Control tokens that grammars may name by their text ("<tool_call>", "</think>"). Every other
    // control token is never allowed: inside a JSON string it would match as ten letters.
    std::vector<int32_t> marker_ids;
  };
  static Result<std::shared_ptr<const Vocabulary>> Create(const text::Tokenizer& tokenizer,
                                                          const Options& options);
  ~Vocabulary();

  int32_t size() const;
  // Words of a token mask: ⌈V/32⌉.
  size_t mask_words() const { return (static_cast<size_t>(size()) + 31) / 32; }
  std::span<const int32_t> stop_ids() const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit Vocabulary(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

class CompiledGrammar {
 public:
  // May take seconds for a large grammar: never on the engine's or an http thread. Errors are
  // kInvalidArgument, name source.field and say where.
  static Result<std::shared_ptr<const CompiledGrammar>> Compile(
      std::shared_ptr<const Vocabulary> vocabulary, const GrammarSource& source);
  ~CompiledGrammar();

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  size_t memory_bytes() const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  CompiledGrammar(std::shared_ptr<const Vocabulary> vocabulary, std::unique_ptr<const Impl> impl);
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace hayate::grammar
