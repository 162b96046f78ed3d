#include "text/prompt_blocks.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace hayate::text {
namespace {

constexpr size_t kBlocksBeforeDoubling = 32;

}  // namespace

void HashPrompt(std::string_view prompt, uint64_t seed, size_t block_bytes, PromptBlocks& out) {
  out.hashes.clear();
  out.ends.clear();
  prompt = prompt.substr(0, kMaxHashedPromptBytes);
  uint64_t hash = seed;
  size_t at = 0;
  while (at + block_bytes <= prompt.size()) {
    hash = XXH3_64bits_withSeed(prompt.data() + at, block_bytes, hash);
    at += block_bytes;
    out.hashes.push_back(hash);
    out.ends.push_back(static_cast<uint32_t>(at));
    if (at >= block_bytes * kBlocksBeforeDoubling) block_bytes *= 2;
  }
}

uint64_t PromptSeed(const BodyFields& fields) {
  return XXH3_64bits_withSeed(fields.model.data(), fields.model.size(), fields.context_hash);
}

}  // namespace hayate::text
