#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "ops/rope/rope.h"

namespace hayate::ops {
namespace {

constexpr double kTau = 2.0 * std::numbers::pi;

Status Check(const RopeConfig& config, int32_t max_position) {
  const auto invalid = [](const char* what) { return Status(ErrorCode::kInvalidArgument, what); };
  if (config.rotary_dim <= 0 || config.rotary_dim % 2 != 0 || config.rotary_dim > config.head_dim) {
    return Error(ErrorCode::kInvalidArgument, "rotary_dim {} must be even and in [2, head_dim {}]",
                 config.rotary_dim, config.head_dim);
  }
  if (!(config.base > 1.0f) || !std::isfinite(config.base))
    return invalid("rope base must be above 1");
  if (!(config.factor >= 1.0f) || !std::isfinite(config.factor)) {
    return invalid("rope scaling factor must be at least 1");
  }
  if (max_position <= 0) return invalid("max_position must be positive");
  const bool needs_original = config.scaling == RopeScaling::kDynamicNtk ||
                              config.scaling == RopeScaling::kYarn ||
                              config.scaling == RopeScaling::kLlama3;
  if (needs_original && config.original_context <= 0) {
    return invalid("rope scaling needs the original context length");
  }
  if (config.scaling == RopeScaling::kLlama3 &&
      !(config.low_freq_factor > 0.0f && config.high_freq_factor > config.low_freq_factor)) {
    return invalid("rope scaling needs 0 < low_freq_factor < high_freq_factor");
  }
  if (config.scaling == RopeScaling::kDynamicNtk && config.rotary_dim <= 2) {
    return invalid("dynamic rope scaling needs rotary_dim above 2");
  }
  if (config.scaling == RopeScaling::kYarn &&
      !(config.beta_slow > 0.0f && config.beta_fast >= config.beta_slow)) {
    return invalid("rope scaling needs 0 < beta_slow <= beta_fast");
  }
  const size_t pairs = static_cast<size_t>(config.rotary_dim / 2);
  if (!config.freq_factors.empty() && config.freq_factors.size() != pairs) {
    return Error(ErrorCode::kInvalidArgument, "{} frequency factors for {} pairs",
                 config.freq_factors.size(), pairs);
  }
  for (const float factor : config.freq_factors) {
    if (!(factor > 0.0f)) return invalid("frequency factors must be positive");
  }
  return OkStatus();
}

// Llama 3.1: long wavelengths are stretched by the factor, short ones kept, a linear blend between.
double Llama3(const RopeConfig& config, double frequency) {
  const double wavelength = kTau / frequency;
  const double low = config.original_context / double{config.low_freq_factor};
  const double high = config.original_context / double{config.high_freq_factor};
  if (wavelength < high) return frequency;
  if (wavelength > low) return frequency / config.factor;
  const double smooth = (config.original_context / wavelength - config.low_freq_factor) /
                        (double{config.high_freq_factor} - config.low_freq_factor);
  return (1.0 - smooth) * frequency / config.factor + smooth * frequency;
}

// YaRN (Peng et al. 2023): the pair that turns `rotations` times over the original context.
double YarnPair(const RopeConfig& config, double rotations) {
  return config.rotary_dim * std::log(config.original_context / (rotations * kTau)) /
         (2.0 * std::log(double{config.base}));
}

void ApplyYarn(const RopeConfig& config, std::vector<double>& frequencies) {
  double low = YarnPair(config, config.beta_fast), high = YarnPair(config, config.beta_slow);
  if (config.yarn_truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, config.rotary_dim - 1.0);
  if (low == high) high += 0.001;  // a step instead of a division by zero
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / config.factor * ramp + frequencies[i] * (1.0 - ramp);
  }
}

double MScale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double YarnAttentionFactor(const RopeConfig& config) {
  if (config.attention_factor > 0.0f) return config.attention_factor;
  if (config.mscale > 0.0f && config.mscale_all_dim > 0.0f) {
    return MScale(config.factor, config.mscale) / MScale(config.factor, config.mscale_all_dim);
  }
  return MScale(config.factor, 1.0);
}

// The base that makes the slowest pair reach `max_position` where it reached the original context.
double DynamicBase(const RopeConfig& config, int32_t max_position) {
  const double length = std::max(max_position, config.original_context);
  const double stretch =
      config.factor * length / config.original_context - (double{config.factor} - 1.0);
  return config.base * std::pow(stretch, config.rotary_dim / (config.rotary_dim - 2.0));
}

}  // namespace

Result<RopeFrequencies> ComputeRopeFrequencies(const RopeConfig& config, int32_t max_position) {
  RETURN_IF_ERROR(Check(config, max_position));
  const double base = config.scaling == RopeScaling::kDynamicNtk ? DynamicBase(config, max_position)
                                                                 : double{config.base};
  std::vector<double> frequencies(static_cast<size_t>(config.rotary_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(base, -2.0 * static_cast<double>(i) / config.rotary_dim);
    if (!config.freq_factors.empty()) frequencies[i] /= config.freq_factors[i];
  }

  RopeFrequencies result;
  switch (config.scaling) {
    case RopeScaling::kNone:
    case RopeScaling::kDynamicNtk:
      break;
    case RopeScaling::kLinear:
      for (double& frequency : frequencies) frequency /= config.factor;
      break;
    case RopeScaling::kLlama3:
      for (double& frequency : frequencies) frequency = Llama3(config, frequency);
      break;
    case RopeScaling::kYarn:
      ApplyYarn(config, frequencies);
      result.attention_factor = static_cast<float>(YarnAttentionFactor(config));
      break;
  }
  for (const double frequency : frequencies) {
    result.inv_freq.push_back(static_cast<float>(frequency));
  }
  return result;
}

}  // namespace hayate::ops
