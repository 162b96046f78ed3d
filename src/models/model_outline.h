#pragma once
// What a config says of a model before a weight is read: its size, and what a cache of it takes.

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"
#include "weights/checkpoint.h"

namespace hayate::models {

// Bytes of a cache of one type, all layers together, on one rank.
struct CacheUse {
  DType dtype = DType::kF16;
  int64_t bytes_per_token = 0;     // kept of every token
  int64_t bytes_per_sequence = 0;  // beside that: windows and states, whatever the length
  // Of a token, if every layer kept an entry of every token.
  int64_t full_attention_bytes_per_token = 0;
};

struct ModelOutline {
  int32_t hidden_size = 0;
  int32_t num_layers = 0;
  int32_t vocab_size = 0;
  int32_t trained_context = 0;
  std::vector<CacheUse> caches;  // the types that a CPU rank can have, widest first
};

// Of any family. The checkpoint may have been opened for its config alone, with dummy tensors for
// dense models and their mixtures. Errors as LoadModel's.
Result<ModelOutline> ReadOutline(const weights::Checkpoint& checkpoint);

}  // namespace hayate::models
