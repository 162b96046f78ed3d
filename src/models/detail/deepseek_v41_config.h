#pragma once
// What a DeepSeek V4.1 trunk is made of, read from the vendor's config.json ("text_config").

#include <cstdint>
#include <vector>

#include "models/detail/deepseek_trunk_config.h"
#include "ops/engram/engram.h"

namespace hayate::models {

struct DeepseekV41Config : DeepseekTrunkConfig {
  // Which layer's entries and index keys, and which layer's selection a layer reads; −1 where the
  // ratio is 0.
  std::vector<int32_t> kv_sources, index_sources;  // [num_layers]
  int32_t candidate_source = -1;  // later selections are made from this layer's candidates
  int32_t candidate_blocks = 0;
  int32_t candidate_block_size = 0;

  std::vector<ops::EngramHash> engrams;  // of engram_layers, in their order
  std::vector<int32_t> engram_layers;
  int32_t engram_width = 0;  // of a table row
  int32_t engram_padding_id = 0;
  int32_t engram_vocab = 0;  // compressed ids

  int32_t kv_source(int layer) const { return kv_sources[static_cast<size_t>(layer)]; }
  bool makes_entries(int layer) const { return kv_source(layer) == layer; }
  bool selects(int layer) const { return index_sources[static_cast<size_t>(layer)] == layer; }
  int engram_of(int layer) const;  // index into engrams, or −1
};

// Errors as ReadTrunkConfig.
Result<DeepseekV41Config> ReadDeepseekV41Config(const weights::Checkpoint& checkpoint);

}  // namespace hayate::models
