#include "api/prompt_keys.h"

#include "base/align.h"
#include "text/prompt_blocks.h"

namespace hayate::api {

void HashPromptOf(std::string_view body, GenerationSpec& spec) {
  if (spec.prompts.size() != 1 || spec.session) return;
  const text::BodyFields fields = text::ScanBody(body);
  if (!fields.complete || fields.batch > 0) return;
  text::HashPrompt(fields.prompt, text::PromptSeed(fields), text::kPromptBlockBytes,
                   spec.prompt_blocks);
  spec.prompt_bytes = fields.prompt.size();
}

std::vector<PrefixKey> PrefixKeysOf(const GenerationSpec& spec, size_t num_tokens) {
  const text::PromptBlocks& blocks = spec.prompt_blocks;
  std::vector<PrefixKey> keys;
  keys.reserve(blocks.hashes.size());
  for (size_t i = 0; i < blocks.hashes.size(); ++i) {
    const uint64_t tokens =
        CeilDiv<uint64_t>(uint64_t{blocks.ends[i]} * num_tokens, spec.prompt_bytes);
    keys.push_back({blocks.hashes[i], static_cast<int32_t>(tokens)});
  }
  return keys;
}

}  // namespace hayate::api
