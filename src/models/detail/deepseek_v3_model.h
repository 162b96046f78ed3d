#pragma once
// What the drafter of DeepSeek V3 and V3.2 uses of its target: the config, the embedding, the head.

#include "models/detail/deepseek_v3_weights.h"
#include "models/layers/rope_table.h"
#include "models/model.h"

namespace hayate::models {

class DeepseekV3Target : public Model {
 public:
  virtual const DeepseekV3Config& config() const = 0;
  virtual const DeepseekV3Weights& weights() const = 0;
  virtual const RopeTable& rope() const = 0;
};

}  // namespace hayate::models
