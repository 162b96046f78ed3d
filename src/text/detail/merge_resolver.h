#pragma once
// Turns merges written as strings ("Ġ" + "the") into merges of ids.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace hayate::text {

class MergeResolver {
 public:
  // `tokens` must outlive the resolver. Unused ids are "".
  explicit MergeResolver(const std::vector<std::string>& tokens);

  // The id of a spelling; the first one if it occurs twice.
  const int32_t* Find(std::string_view token) const;
  // Fails with kInvalidArgument when a part or the whole is no token.
  Result<MergeRule> Resolve(std::string_view left, std::string_view right, size_t rank) const;
  // The same for the form "left right".
  Result<MergeRule> Resolve(std::string_view merge, size_t rank) const;

 private:
  std::unordered_map<std::string_view, int32_t> ids_;
};

}  // namespace hayate::text
