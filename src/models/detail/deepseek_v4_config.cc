#include "models/detail/deepseek_v4_config.h"

#include <bit>

#include "base/error.h"
#include "models/detail/config_readers.h"

namespace hayate::models {
namespace {

Result<DeepseekV4Config> Read(const weights::Checkpoint& checkpoint) {
  const weights::Metadata& metadata = checkpoint.metadata();
  DeepseekV4Config config;
  config.query_norm = true;
  config.tile = 128;
  RETURN_IF_ERROR(ReadTrunkConfig(checkpoint, "", config));
  if (!std::has_single_bit(static_cast<uint32_t>(config.index_dim))) {
    return Error(ErrorCode::kDataLoss, "index_head_dim is {}, must be a power of two",
                 config.index_dim);
  }
  ASSIGN_OR_RETURN(config.num_hash_layers,
                   ReadBounded(metadata, "num_hash_layers", 0, config.num_layers, 0));
  ASSIGN_OR_RETURN(config.ratios, ReadCompressRatios(metadata, "", config.num_layers));
  for (size_t i = 0; i < config.ratios.size(); ++i) {
    if (config.ratios[i] != 1) continue;
    return Error(ErrorCode::kDataLoss, "compress_ratios[{}] is 1, must be 0 or at least 2", i);
  }
  return config;
}

}  // namespace

Result<DeepseekV4Config> ReadDeepseekV4Config(const weights::Checkpoint& checkpoint) {
  Result<DeepseekV4Config> config = Read(checkpoint);
  if (!config.ok()) return config.status().Under(checkpoint.path().string());
  return config;
}

}  // namespace hayate::models
