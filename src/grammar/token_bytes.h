#pragma once
// What tokens add to a text, as grammars see them.

#include <cstdint>
#include <string_view>

#include "grammar/compiled_grammar.h"

namespace hayate::grammar {

// Empty for tokens that no grammar may produce as text. Lives as long as the vocabulary.
std::string_view TokenBytes(const Vocabulary& vocabulary, int32_t id);

}  // namespace hayate::grammar
