#pragma once
// The sections of tokenizer.json, each read into its part of a TokenizerSpec.

#include "base/status.h"
#include "text/detail/json_node.h"
#include "text/tokenizer_spec.h"

namespace hayate::text {

Status ReadModel(const JsonNode& model, BpeSpec& bpe);
Status ReadNormalizer(const JsonNode& normalizer, std::vector<NormalizerStep>& steps);
// Also finds out whether the model is byte-level.
Status ReadPreTokenizer(const JsonNode& pre_tokenizer, TokenizerSpec& spec);
Status ReadDecoder(const JsonNode& decoder, TokenizerSpec& spec);
Status ReadPostProcessor(const JsonNode& post_processor, TokenizerSpec& spec);

}  // namespace hayate::text
