#pragma once
// How a request's prompt is named for those who follow what is cached: the hashes of its raw JSON,
// each placed on the tokens that it stands for.

#include <string_view>
#include <vector>

#include "api/generation_spec.h"
#include "core/prefix_key.h"

namespace hayate::api {

// Fills spec.prompt_blocks from the request's body. Lists of prompts and the turns of a session
// have none.
void HashPromptOf(std::string_view body, GenerationSpec& spec);

// The keys of a prompt of `num_tokens`. Where a block of text ends among the tokens is
// interpolated: tokens differ in length, so a key may stand some tokens off.
std::vector<PrefixKey> PrefixKeysOf(const GenerationSpec& spec, size_t num_tokens);

}  // namespace hayate::api
