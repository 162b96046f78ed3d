#pragma once
// TokenizerSpec from the files of a Hugging Face checkpoint.

#include <string_view>

#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace hayate::text {

// Contents, not paths.
struct HfTokenizerFiles {
  std::string_view tokenizer_json;
  std::string_view tokenizer_config_json;  // may be empty
};

// Reads BPE tokenizers: normalizers NFC/NFD/NFKC/NFKD, Prepend, Replace, Strip, Sequence;
// pre-tokenizers Split, ByteLevel, Digits, Metaspace, Sequence; decoders ByteLevel, Metaspace,
// Replace, ByteFallback, Fuse, Strip, Sequence; post-processors ByteLevel, TemplateProcessing,
// Sequence. From the config file: bos_token, eos_token, add_bos_token, add_eos_token. Anything that
// would change ids and is not known fails with kUnsupported, named with its place; damaged files
// fail with kInvalidArgument.
Result<TokenizerSpec> ParseTokenizerJson(const HfTokenizerFiles& files);

}  // namespace hayate::text
