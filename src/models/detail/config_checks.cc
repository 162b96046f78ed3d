#include "models/detail/config_checks.h"

#include "base/error.h"

namespace hayate::models {

using weights::Metadata;

Status RequireString(const Metadata& metadata, std::string_view key, std::string_view value) {
  ASSIGN_OR_RETURN(const std::string_view found, metadata.GetString(key, value));
  if (found == value) return OkStatus();
  return Error(ErrorCode::kUnsupported, "{} is '{}'; only '{}' is implemented", key, found, value);
}

Status RequireBool(const Metadata& metadata, std::string_view key, bool value) {
  ASSIGN_OR_RETURN(const bool found, metadata.GetBool(key, value));
  if (found == value) return OkStatus();
  return Error(ErrorCode::kUnsupported, "{} is {}; only {} is implemented", key, found, value);
}

Status RequireInt(const Metadata& metadata, std::string_view key, int64_t value) {
  ASSIGN_OR_RETURN(const int64_t found, metadata.GetInt(key, value));
  if (found == value) return OkStatus();
  return Error(ErrorCode::kUnsupported, "{} is {}; only {} is implemented", key, found, value);
}

Result<float> ReadBoundedFloat(const Metadata& metadata, std::string_view key, double low,
                               double high) {
  ASSIGN_OR_RETURN(const double value, metadata.GetFloat(key));
  if (!(value >= low && value <= high)) {
    return Error(ErrorCode::kDataLoss, "{} is {}, must be in [{}, {}]", key, value, low, high);
  }
  return static_cast<float>(value);
}

}  // namespace hayate::models
