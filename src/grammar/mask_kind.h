#pragma once
// What a mask of allowed tokens says.

#include <cstdint>

namespace hayate::grammar {

// A mask that allows everything need not be applied.
enum class MaskKind : uint8_t {
  kAll,       // every token is allowed; the bits are all set
  kSome,      // the bits say which
  kOnlyStop,  // the text is complete and nothing but a stop token can follow
  kNone,      // no token can continue the text: the vocabulary cannot spell what the grammar wants
};

}  // namespace hayate::grammar
