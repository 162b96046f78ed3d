#pragma once
// How few ids a text can become: what is far too long for a model is known so in one pass over its
// bytes, without tokenising it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "text/tokenizer_spec.h"

namespace hayate::text {

class IdBound {
 public:
  // `token_bytes` by id: what each token adds to a text.
  IdBound(const TokenizerSpec& spec, std::span<const std::string> token_bytes);

  // No text like this has fewer ids; 0 where the tokenizer allows no bound.
  size_t MinIds(std::string_view text) const;

 private:
  std::array<uint8_t, 256> counts_{};  // 1: the byte always becomes part of a token
  size_t max_bytes_per_id_ = 0;        // 0: no bound
};

}  // namespace hayate::text
