#pragma once
// config.json of an EAGLE-3 head as SGLang and vLLM read it: a Llama of one layer, and
//
//   draft_vocab_size                                tokens that the head can guess; all, if absent
//   eagle_config.eagle_aux_hidden_state_layer_ids   layers of the target whose output it looks at
//   eagle_aux_hidden_state_layer_ids                (vLLM) layers whose input it looks at
//   norm_before_residual                            whether the layer adds to the normed state

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "models/config.h"
#include "weights/checkpoint.h"

namespace hayate::models {

struct Eagle3Config {
  ModelConfig layer;
  int32_t draft_vocab_size = 0;
  bool norm_before_residual = false;
};

// kUnsupported for forms of the head that have no implementation; kDataLoss. Both name the field.
Result<Eagle3Config> ReadEagle3Config(const weights::Checkpoint& head);

// Layers of a target of `num_layers` layers whose input the head looks at, in the order in which
// they are joined; all in [0, num_layers). Without a field the published choice: 2, the middle one,
// the last but two.
Result<std::vector<int32_t>> ReadEagle3Layers(const weights::Checkpoint& head, int32_t num_layers);

}  // namespace hayate::models
