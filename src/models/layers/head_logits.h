#pragma once
// A rank's columns of the logits.

#include <cstdint>

#include "models/layers/head_shard.h"
#include "models/layers/linear.h"
#include "models/model.h"

namespace hayate::models {

// Columns `vocab` of logits [L, vocab_size] f32 = head [vocab.size(), H] · x [L, H]; nothing where
// the rank holds no part of the head.
void WriteLogits(const ForwardContext& context, const Linear& head, Range vocab, int32_t vocab_size,
                 ConstTensorView x, float* logits);

}  // namespace hayate::models
