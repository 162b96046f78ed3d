#pragma once
// Fields of a config that must have one value, where they are there at all.

#include <string_view>

#include "base/status.h"
#include "weights/metadata.h"

namespace hayate::models {

// kUnsupported names the field and the only value that is implemented.
Status RequireString(const weights::Metadata& metadata, std::string_view key,
                     std::string_view value);
Status RequireBool(const weights::Metadata& metadata, std::string_view key, bool value);
Status RequireInt(const weights::Metadata& metadata, std::string_view key, int64_t value);

// A number in [low, high]; kDataLoss names the field.
Result<float> ReadBoundedFloat(const weights::Metadata& metadata, std::string_view key, double low,
                               double high);

}  // namespace hayate::models
