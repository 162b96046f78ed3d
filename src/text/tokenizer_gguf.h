#pragma once
// TokenizerSpec from the metadata of a GGUF file, given as values so that this module knows no file
// format. A GGUF names its pre-tokenizer ("smollm", "qwen2") instead of holding the pattern.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace hayate::text {

// The keys tokenizer.ggml.*; a missing key stays at its default here.
struct GgufTokenizerData {
  std::string model;                // "gpt2": byte-level BPE; "llama": SentencePiece BPE
  std::string pre;                  // pre-tokenizer name, for "gpt2"
  std::vector<std::string> tokens;  // by id
  std::vector<int32_t>
      token_types;  // by id: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  std::vector<float> scores;        // by id, for "llama"
  std::vector<std::string> merges;  // "left right", for "gpt2"
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::optional<int32_t> unk_id;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
};

// Fails with kUnsupported for models and pre-tokenizers that are not known, naming them: a guess
// would give wrong ids silently.
Result<TokenizerSpec> MakeTokenizerSpec(GgufTokenizerData data);

}  // namespace hayate::text
