#pragma once
// What the drafters of DeepSeek V4 and V4.1 use of their target: the config, the embedding, the
// head.

#include "models/detail/deepseek_draft_config.h"
#include "models/detail/deepseek_trunk_cache.h"

namespace hayate::models {

class DeepseekTrunkModel : public Model {
 public:
  virtual const DeepseekTrunkConfig& config() const = 0;
  virtual const TrunkWeights& trunk() const = 0;
  virtual const DeepseekDraftConfig& drafts() const = 0;
  virtual const DeepseekTrunkCache& cache() const = 0;
  virtual const DeepseekRope& rope() const = 0;
};

}  // namespace hayate::models
