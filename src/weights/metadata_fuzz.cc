#include <cstdint>
#include <string_view>

#include "weights/metadata.h"

// Any bytes as a config.json: every accepted value can be asked for as every type.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hayate;
  const auto metadata =
      weights::Metadata::FromJson(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!metadata.ok()) return 0;
  for (const auto& [key, value] : metadata->values()) {
    (void)metadata->GetInt(key);
    (void)metadata->GetFloat(key);
    (void)metadata->GetBool(key);
    (void)metadata->GetString(key);
    (void)metadata->GetIntArray(key);
    (void)metadata->GetFloatArray(key);
    (void)metadata->GetStringArray(key);
    (void)weights::Summarize(value, 20);
  }
  return 0;
}
