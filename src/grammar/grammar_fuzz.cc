// Any text as a schema, expression, grammar or structural tag: it compiles or is refused, and what
// compiles can be followed.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "grammar/compiled_grammar.h"
#include "grammar/matcher.h"
#include "text/testing/small_tokenizers.h"

namespace hayate::grammar {
namespace {

// Bytes, and tokens of several that end one part of a text and begin the next.
std::shared_ptr<const Vocabulary> SmallVocabulary() {
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"a", "b"},  {"ab", "ab"}, {"\"", ","},      {"\",", "\""}, {"\"", "}"},
      {"a", "\""}, {"a\"", ","}, {"a\",", "\""},   {"\"", ":"},   {"\"", "\""},
      {"\\", "n"}, {"\\", "\""}, {"\xC3", "\xA9"}, {"1", "2"},    {"]", "}"}};
  text::TokenizerSpec spec = text::testing::ByteLevelSpec(merges);
  const auto end = static_cast<int32_t>(256 + merges.size());
  spec.added_tokens.push_back({.content = "<|end|>", .id = end, .special = true});
  return Vocabulary::Create(*text::testing::Make(std::move(spec)),
                            {.vocab_size = end + 1, .stop_ids = {end}})
      .value();
}

bool Allows(const std::vector<uint32_t>& mask, int32_t token) {
  return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
}

void Run(uint8_t choice, std::string text) {
  static const std::shared_ptr<const Vocabulary> vocabulary = SmallVocabulary();
  const auto kind = static_cast<GrammarKind>(choice % 5);
  Rng rng(choice + 256 * text.size());
  const auto grammar = CompiledGrammar::Compile(vocabulary, {kind, std::move(text), "field"});
  if (!grammar.ok()) {
    CHECK(grammar.status().param() == "field") << grammar.status().ToString();
    return;
  }
  Matcher matcher(*grammar);
  std::vector<uint32_t> mask(vocabulary->mask_words());
  for (int step = 0; step < 64 && !matcher.ended(); ++step) {
    if (matcher.FillMask(mask) == MaskKind::kNone) return;
    // What the mask allows is taken, and nothing else; budgets may force more than a mask says.
    int32_t token = static_cast<int32_t>(rng.Below(static_cast<uint32_t>(vocabulary->size())));
    if (kind != GrammarKind::kStructuralTag && matcher.Accept(token)) {
      CHECK(Allows(mask, token)) << token;
      matcher.Rollback(1);
    }
    while (!Allows(mask, token)) token = (token + 1) % vocabulary->size();
    CHECK(matcher.Accept(token)) << token;
  }
}

}  // namespace
}  // namespace hayate::grammar

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMaxBytes = 2048;  // larger ones only take longer to compile
  if (size < 1 || size > kMaxBytes) return 0;
  hayate::grammar::Run(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
