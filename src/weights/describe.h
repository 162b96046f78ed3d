#pragma once
// What a checkpoint holds, for `hayate inspect`.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "weights/checkpoint.h"

namespace hayate::weights {

// Weights that a tensor stands for: two a byte of packed E2M1 (I8 matrices of DeepSeek, *_blocks of
// GPT-OSS), none for scales and for tables of ids.
int64_t NumParameters(std::string_view name, const TensorInfo& info);

struct DTypeUsage {
  int64_t num_tensors = 0;
  int64_t num_elements = 0;
  uint64_t bytes = 0;
};

struct CheckpointSummary {
  std::string path;
  std::string format;
  std::string architecture;
  std::vector<std::string> files;
  int64_t num_parameters = 0;
  uint64_t tensor_bytes = 0;
  std::map<std::string, DTypeUsage> dtypes;                   // by dtype name
  std::vector<std::pair<std::string, std::string>> metadata;  // key, short value
  std::string tokenizer;  // "gpt2 (smollm), 49152 tokens, 48900 merges"
  std::vector<std::pair<std::string, std::string>> templates;  // name, first line(s)
  SpecialTokens special_tokens;
};

Result<CheckpointSummary> Describe(const Checkpoint& checkpoint);

// Lines for a terminal, and one JSON object with the same content plus the tensor list.
std::string ToText(const CheckpointSummary& summary);
std::string ToJson(const CheckpointSummary& summary, const Checkpoint& checkpoint);

}  // namespace hayate::weights
