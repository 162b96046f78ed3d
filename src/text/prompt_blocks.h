#pragma once
// The prompt of a request as a chain of hashes over blocks of its raw JSON: two prompts have a
// common beginning as far as their chains agree. Needs no tokenizer, so that routers can find the
// replica that holds a prefix; a replica that tells which hashes it holds computes the same.
//
//   value of the body's prompt field   |64|64| … |64|128|128| …    blocks double with their offset
//   hashes                              h0 h1      h31 h32          h(i) = XXH3(block i, h(i-1))
//
// Block i is `block_bytes`, doubled each time that the offset behind it reaches 32 of its blocks.
// What remains behind the last whole block has no hash. h(-1) is the seed.

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/body_scan.h"

namespace hayate::text {

inline constexpr size_t kPromptBlockBytes = 64;
inline constexpr size_t kMaxHashedPromptBytes = 1 << 20;  // what follows is not looked at

struct PromptBlocks {
  std::vector<uint64_t> hashes;
  std::vector<uint32_t> ends;  // bytes of the prompt up to the end of that block
};

// `out` is overwritten; its memory is reused.
void HashPrompt(std::string_view prompt, uint64_t seed, size_t block_bytes, PromptBlocks& out);

// Keeps prompts apart that share no cache though their text agrees: another model name, other
// tools, another adapter or salt.
uint64_t PromptSeed(const BodyFields& fields);

}  // namespace hayate::text
