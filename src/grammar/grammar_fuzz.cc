// Any text as a schema, expression, grammar or structural tag: it compiles or is refused, and what
// compiles can be followed.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "grammar/compiled_grammar.h"
#include "grammar/matcher.h"
#include "text/testing/small_tokenizers.h"

namespace hayate::grammar {
namespace {

constexpr int32_t kEnd = 256;

std::shared_ptr<const Vocabulary> Bytes() {
  text::TokenizerSpec spec = text::testing::ByteLevelSpec({});
  spec.added_tokens.push_back({.content = "<|end|>", .id = kEnd, .special = true});
  return Vocabulary::Create(*text::testing::Make(std::move(spec)),
                            {.vocab_size = kEnd + 1, .stop_ids = {kEnd}})
      .value();
}

void Run(uint8_t kind, std::string text) {
  static const std::shared_ptr<const Vocabulary> vocabulary = Bytes();
  const auto grammar = CompiledGrammar::Compile(
      vocabulary, {static_cast<GrammarKind>(kind % 5), std::move(text), "field"});
  if (!grammar.ok()) {
    CHECK(grammar.status().param() == "field") << grammar.status().ToString();
    return;
  }
  Matcher matcher(*grammar);
  std::vector<uint32_t> mask(vocabulary->mask_words());
  // The lowest allowed token each time: every one that the mask allows must be taken.
  for (int i = 0; i < 64 && !matcher.ended(); ++i) {
    if (matcher.FillMask(mask) == MaskKind::kNone) return;
    int32_t token = 0;
    while ((mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) == 0) ++token;
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
