#include "text/tokenizer_gguf.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "base/error.h"
#include "text/detail/merge_resolver.h"
#include "text/detail/utf8.h"
#include "text/tokenizer.h"
#include "text/tokenizer_patterns.h"

namespace hayate::text {
namespace {

constexpr std::string_view kWordMarker = "▁";
// Every cut of a token is looked up, so the work grows with the square of its length.
constexpr size_t kMaxSentencePieceBytes = 1024;

enum class GgufTokenType { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// What the name in tokenizer.ggml.pre stands for.
struct PreTokenizerPreset {
  std::string_view name;
  std::span<const std::string_view> patterns;
  bool add_bos = false;  // when tokenizer.ggml.add_bos_token is absent
  bool ignore_merges = false;
  bool nfc = false;
};

constexpr std::array kGpt2 = {kGpt2Pattern};
constexpr std::array kSmolLm = {kDigitPattern, kGpt2Pattern};
constexpr std::array kLlama3 = {kLlama3Pattern};
constexpr std::array kQwen2 = {kQwen2Pattern};
constexpr std::array kQwen35 = {kQwen35Pattern};
constexpr std::array kO200k = {kO200kPattern};
constexpr std::array kTekken = {kTekkenPattern};
constexpr std::array kDeepSeekV3 = {kDigitsByThreePattern, kDeepSeekCjkPattern, kDeepSeekV3Pattern};
constexpr std::array kDeepSeekCoder = {kLineEndPattern, kSpacedLettersPattern,
                                       kSpacedPunctuationPattern, kDeepSeekV1CjkPattern,
                                       kDigitPattern};

constexpr PreTokenizerPreset kPresets[] = {
    {.name = "gpt-2", .patterns = kGpt2},
    {.name = "mpt", .patterns = kGpt2},
    {.name = "olmo", .patterns = kGpt2},
    {.name = "smollm", .patterns = kSmolLm},
    {.name = "starcoder", .patterns = kSmolLm},
    {.name = "command-r", .patterns = kSmolLm},
    {.name = "llama3", .patterns = kLlama3, .add_bos = true, .ignore_merges = true},
    {.name = "llama-v3", .patterns = kLlama3, .add_bos = true, .ignore_merges = true},
    {.name = "llama-bpe", .patterns = kLlama3, .add_bos = true, .ignore_merges = true},
    {.name = "dbrx", .patterns = kLlama3},
    {.name = "smaug-bpe", .patterns = kLlama3},
    {.name = "chatglm-bpe", .patterns = kLlama3},
    {.name = "glm4", .patterns = kLlama3},
    {.name = "qwen2", .patterns = kQwen2, .nfc = true},
    {.name = "deepseek-r1-qwen", .patterns = kQwen2, .nfc = true},
    {.name = "qwen35", .patterns = kQwen35, .nfc = true},
    {.name = "gpt-4o", .patterns = kO200k},
    {.name = "llama4", .patterns = kO200k, .add_bos = true},
    {.name = "tekken", .patterns = kTekken, .add_bos = true, .ignore_merges = true},
    {.name = "deepseek-v3", .patterns = kDeepSeekV3},
    {.name = "deepseek-coder", .patterns = kDeepSeekCoder},
};

Result<PreTokenizerPreset> FindPreset(std::string_view name) {
  // Files from before the key existed hold GPT-2's pattern or are unusable; converters write
  // "default" for what they did not recognise.
  if (name.empty() || name == "default") name = "gpt-2";
  const auto* preset =
      std::find_if(std::begin(kPresets), std::end(kPresets),
                   [name](const auto& candidate) { return candidate.name == name; });
  if (preset == std::end(kPresets)) {
    return Error(ErrorCode::kUnsupported, "tokenizer.ggml.pre: pre-tokenizer '{}' is not known",
                 name);
  }
  return *preset;
}

GgufTokenType TypeOf(const GgufTokenizerData& data, size_t id) {
  return id < data.token_types.size() ? GgufTokenType{data.token_types[id]}
                                      : GgufTokenType::kNormal;
}

// Control and user-defined tokens leave the model's vocabulary: they are found in the text instead.
void MoveAddedTokens(GgufTokenizerData& data, TokenizerSpec& spec) {
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const GgufTokenType type = TypeOf(data, id);
    const bool special = type == GgufTokenType::kControl || type == GgufTokenType::kUnknown;
    if (!special && type != GgufTokenType::kUserDefined) continue;
    spec.added_tokens.push_back({.content = std::move(data.tokens[id]),
                                 .id = static_cast<int32_t>(id),
                                 .special = special});
    data.tokens[id].clear();
  }
}

// SentencePiece joins the two neighbours whose join has the best score. Said as merges: every way
// to cut a token in two tokens is a merge, ranked by the token's score.
std::vector<MergeRule> MergesFromScores(const GgufTokenizerData& data,
                                        const std::vector<std::string>& tokens) {
  std::vector<int32_t> by_score;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (TypeOf(data, id) == GgufTokenType::kNormal) by_score.push_back(static_cast<int32_t>(id));
  }
  std::sort(by_score.begin(), by_score.end(), [&data](int32_t a, int32_t b) {
    const float score_a = data.scores[static_cast<size_t>(a)];
    const float score_b = data.scores[static_cast<size_t>(b)];
    return score_a != score_b ? score_a > score_b : a < b;
  });
  const MergeResolver resolver(tokens);
  std::vector<MergeRule> rules;
  int32_t rank = -1;
  float last_score = 0;
  for (const int32_t id : by_score) {
    const std::string_view token = tokens[static_cast<size_t>(id)];
    const float score = data.scores[static_cast<size_t>(id)];
    if (rank < 0 || score != last_score) ++rank;
    last_score = score;
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if (IsUtf8Continuation(static_cast<unsigned char>(token[cut]))) continue;
      const int32_t* left = resolver.Find(token.substr(0, cut));
      const int32_t* right = resolver.Find(token.substr(cut));
      if (left != nullptr && right != nullptr) rules.push_back({*left, *right, id, rank});
    }
  }
  return rules;
}

Status FillByteLevel(GgufTokenizerData& data, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const PreTokenizerPreset preset, FindPreset(data.pre));
  for (const std::string_view pattern : preset.patterns) {
    spec.pre_tokenizer.push_back(SplitText{.pattern = std::string(pattern)});
  }
  if (preset.nfc) spec.normalizer.push_back(UnicodeForm::kNfc);
  if (!data.add_bos) data.add_bos = preset.add_bos;
  MoveAddedTokens(data, spec);
  const MergeResolver resolver(data.tokens);
  for (size_t i = 0; i < data.merges.size(); ++i) {
    Result<MergeRule> rule = resolver.Resolve(data.merges[i], i);
    if (!rule.ok()) return rule.status().Under(fmt::format("tokenizer.ggml.merges[{}]", i));
    spec.bpe.merges.push_back(*rule);
  }
  spec.bpe.byte_level = true;
  spec.bpe.ignore_merges = preset.ignore_merges;
  return OkStatus();
}

Status FillSentencePiece(GgufTokenizerData& data, TokenizerSpec& spec) {
  if (data.scores.size() != data.tokens.size()) {
    return Error(ErrorCode::kInvalidArgument, "tokenizer.ggml.scores: {} values for {} tokens",
                 data.scores.size(), data.tokens.size());
  }
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (data.tokens[id].size() > kMaxSentencePieceBytes || !std::isfinite(data.scores[id])) {
      return Error(ErrorCode::kInvalidArgument,
                   "tokenizer.ggml.tokens[{}]: {} bytes with score {}; at most {} and finite", id,
                   data.tokens[id].size(), data.scores[id], kMaxSentencePieceBytes);
    }
  }
  const bool prefix = data.add_space_prefix.value_or(true);
  if (prefix) spec.normalizer.push_back(PrependText{std::string(kWordMarker)});
  spec.normalizer.push_back(SubstituteText{" ", std::string(kWordMarker)});
  spec.decoder = {.space_marker = std::string(kWordMarker), .strip_leading_space = prefix};
  if (!data.add_bos) data.add_bos = true;
  MoveAddedTokens(data, spec);
  spec.bpe.merges = MergesFromScores(data, data.tokens);
  spec.bpe.byte_fallback = true;
  spec.bpe.fuse_unk = true;
  spec.bpe.unk_id = data.unk_id;
  return OkStatus();
}

}  // namespace

Result<TokenizerSpec> MakeTokenizerSpec(GgufTokenizerData data) {
  if (data.tokens.empty() || data.tokens.size() > Tokenizer::kMaxVocabSize) {
    return Error(ErrorCode::kInvalidArgument, "tokenizer.ggml.tokens: {} tokens, not 1 to {}",
                 data.tokens.size(), Tokenizer::kMaxVocabSize);
  }
  TokenizerSpec spec;
  if (data.model == "gpt2") {
    RETURN_IF_ERROR(FillByteLevel(data, spec));
  } else if (data.model == "llama") {
    RETURN_IF_ERROR(FillSentencePiece(data, spec));
  } else {
    return Error(ErrorCode::kUnsupported,
                 "tokenizer.ggml.model: '{}' is not known; gpt2 and llama are", data.model);
  }
  spec.bpe.tokens = std::move(data.tokens);
  spec.bos_id = data.bos_id;
  spec.eos_id = data.eos_id;
  if (data.add_bos.value_or(false) && data.bos_id) spec.prefix_ids = {*data.bos_id};
  if (data.add_eos.value_or(false) && data.eos_id) spec.suffix_ids = {*data.eos_id};
  return spec;
}

}  // namespace hayate::text
