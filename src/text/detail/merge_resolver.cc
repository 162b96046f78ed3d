#include "text/detail/merge_resolver.h"

#include "base/error.h"

namespace hayate::text {

MergeResolver::MergeResolver(const std::vector<std::string>& tokens) {
  ids_.reserve(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].empty()) ids_.emplace(tokens[id], static_cast<int32_t>(id));
  }
}

const int32_t* MergeResolver::Find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? nullptr : &found->second;
}

Result<MergeRule> MergeResolver::Resolve(std::string_view left, std::string_view right,
                                         size_t rank) const {
  const int32_t* left_id = Find(left);
  const int32_t* right_id = Find(right);
  const int32_t* result = Find(std::string(left).append(right));
  if (left_id == nullptr || right_id == nullptr || result == nullptr) {
    return Error(ErrorCode::kInvalidArgument, "'{}' + '{}' are not two tokens that make a third",
                 left, right);
  }
  return MergeRule{*left_id, *right_id, *result, static_cast<int32_t>(rank)};
}

Result<MergeRule> MergeResolver::Resolve(std::string_view merge, size_t rank) const {
  const size_t space = merge.find(' ');
  if (space == std::string_view::npos) {
    return Error(ErrorCode::kInvalidArgument, "'{}' has no space between two tokens", merge);
  }
  return Resolve(merge.substr(0, space), merge.substr(space + 1), rank);
}

}  // namespace hayate::text
