#pragma once
// A request as the engine takes it: tokenised, validated, complete. Made by api on the text pool,
// moved through the inbox, owned by the engine from there.

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/prefix_key.h"
#include "core/sampling_params.h"

namespace hayate {

namespace grammar {
class CompiledGrammar;
}

inline constexpr int64_t kNoDeadline = std::numeric_limits<int64_t>::max();

struct Request {
  RequestId id;
  std::vector<TokenId> prompt;  // never empty
  SamplingParams sampling;
  LogprobParams logprobs;
  // What the answer must look like; null: anything. Immutable and shared between requests.
  std::shared_ptr<const grammar::CompiledGrammar> grammar;

  int32_t priority = 0;  // higher runs first under the priority policy
  int64_t deadline_ns =
      kNoDeadline;         // on the engine's clock; past it the request ends with kDeadlineExceeded
  int64_t arrival_ns = 0;  // set by the inbox
  // Prefix-cache namespace (cache_salt, extra_key, adapter): only equal strings share pages.
  std::string cache_namespace;
  // Names of the prompt's prefixes for those who follow what is cached, shortest first; may be
  // empty.
  std::vector<PrefixKey> prefix_keys;
  // Which outbox its events go to: the owning http thread.
  int32_t outbox = 0;
};

}  // namespace hayate
