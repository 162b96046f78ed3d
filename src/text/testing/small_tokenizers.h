#pragma once
// Small tokenizers for tests.

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace hayate::text::testing {

// Byte-level: token i is byte i for i < 256; then one token per merge, given as raw bytes {left,
// right}.
TokenizerSpec ByteLevelSpec(const std::vector<std::pair<std::string, std::string>>& merges);

// Llama 2's kind: <unk> 0, <s> 1, </s> 2, bytes 3..258, then `pieces` in order of merge rank.
TokenizerSpec MetaspaceSpec(const std::vector<std::string>& pieces);

// The tokenizer of a spec that is known to be good.
std::shared_ptr<const Tokenizer> Make(TokenizerSpec spec);

// The GPT-2 spelling of raw bytes.
std::string Spell(std::string_view bytes);

}  // namespace hayate::text::testing
