#pragma once
// The two spellings of a model's config, and what both must satisfy.

#include <string_view>

#include "base/status.h"
#include "models/config.h"

namespace hayate::models {

enum class Family : uint8_t { kLlama, kQwen2, kQwen3 };

// `architecture` as config.json or as GGUF spells it.
Result<Family> FamilyOf(std::string_view architecture);

Result<ModelConfig> ReadHfConfig(const weights::Checkpoint& checkpoint, Family family);
Result<ModelConfig> ReadGgufConfig(const weights::Checkpoint& checkpoint, Family family);

// Reads a field that must be an integer in [low, high].
Result<int32_t> ReadBounded(const weights::Metadata& metadata, std::string_view key, int64_t low,
                            int64_t high);
// The same with a value for a field that is absent.
Result<int32_t> ReadBounded(const weights::Metadata& metadata, std::string_view key, int64_t low,
                            int64_t high, int64_t fallback);

// Bounds far above any model, so that products of them stay in 64 bits.
inline constexpr int64_t kMaxWidth = 1 << 20;
inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxVocab = 1 << 24;
inline constexpr int64_t kMaxContext = 1 << 28;

}  // namespace hayate::models
