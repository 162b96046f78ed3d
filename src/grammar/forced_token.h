#pragma once
// Where a grammar leaves no choice about what comes next, but only about how tokens spell it.

#include <cstdint>
#include <optional>
#include <span>

#include "grammar/compiled_grammar.h"

namespace hayate::grammar {

// The longest token of a mask if every other one is a beginning of it; nothing where the mask
// leaves a choice, or none. The model may still spell the text with shorter tokens.
std::optional<int32_t> ForcedToken(const Vocabulary& vocabulary, std::span<const uint32_t> mask);

}  // namespace hayate::grammar
