#pragma once
// What a model keeps per token between steps, as data: declared by models, carved into pools by kv
// and exec, budgeted by sched. Lives here because models and kv must not see each other.

#include <cstdint>
#include <string>
#include <vector>

namespace hayate {

enum class CacheKind : uint8_t {
  kFull,        // an entry for every token: K/V, latent rows, indexer keys
  kWindow,      // only the last `window` tokens are ever read
  kCompressed,  // one entry for every `ratio` tokens
  kState,       // one state per sequence, replaced in place, empty at every page border: no part
                // of a prefix of whole pages
};

struct CacheGroup {
  std::string name;  // "kv", "kv_window", "csa_state"; no other group of the layout has it
  CacheKind kind = CacheKind::kFull;
  int32_t window = 0;  // kWindow: tokens, counting the current one
  // kWindow: no part of cached prefixes. A sequence that begins behind one computes the prefix's
  // last tokens again (CacheLayout::replay_tokens) and so gets its window back.
  bool replayed = false;
  int32_t ratio = 1;  // kCompressed: tokens per entry; divides page_tokens
  // Bytes of one page over all layers of the group, on the rank that holds the most.
  int64_t page_bytes = 0;
};

struct CacheLayout {
  // Tokens covered by a page in every group; a multiple of every ratio.
  int32_t page_tokens = 0;
  std::vector<CacheGroup> groups;
  // With replayed groups: how many tokens of a prefix are computed again, more by less than a page.
  int32_t replay_tokens = 0;
};

}  // namespace hayate
