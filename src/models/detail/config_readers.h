#pragma once
// The two spellings of a model's config, and what both must satisfy.

#include <span>
#include <string_view>

#include "base/status.h"
#include "models/config.h"

namespace hayate::models {

enum class Family : uint8_t { kLlama, kQwen2, kQwen3, kQwen2Moe, kQwen3Moe, kGptOss };

// `architecture` as config.json or as GGUF spells it.
Result<Family> FamilyOf(std::string_view architecture);

Result<ModelConfig> ReadHfConfig(const weights::Checkpoint& checkpoint, Family family);
Result<ModelConfig> ReadGgufConfig(const weights::Checkpoint& checkpoint, Family family);

// The mixture of experts of Qwen2-MoE, Qwen3-MoE and GPT-OSS; `config` has its plain fields.
Result<MoeSettings> ReadHfMoe(const weights::Metadata& metadata, const ModelConfig& config,
                              Family family);

// Scales of FP8 weights, from quantization_config; none without one. kUnsupported for other methods
// than `fp8` in blocks and those in `others` (whose weights say themselves how they are stored).
Result<Fp8Block> ReadFp8Block(const weights::Metadata& metadata,
                              std::span<const std::string_view> others);

// The rotary settings of a head of which the first `rotary_dim` features turn.
Result<ops::RopeConfig> ReadHfRope(const weights::Metadata& metadata, int32_t head_dim,
                                   int32_t trained_context);

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
