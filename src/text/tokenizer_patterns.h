#pragma once
// Pre-tokenizer patterns that tokenizer files refer to by name instead of spelling them out.

#include <string_view>

namespace hayate::text {

// GPT-2, SmolLM2 and the "ByteLevel" pre-tokenizer of tokenizer.json (openai/gpt-2,
// src/encoder.py).
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// cl100k with digits in threes: Llama 3.
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The same with single digits: Qwen 2 to Qwen 3.
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Qwen 2 with combining marks kept on their letters: Qwen 3.5.
inline constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// o200k: GPT-4o, GPT-OSS.
inline constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Tekken: Mistral from NeMo on.
inline constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// DeepSeek V3 to V4.1, three splits one after another: digits, CJK, everything else.
inline constexpr std::string_view kDigitsByThreePattern = R"(\p{N}{1,3})";
inline constexpr std::string_view kDeepSeekCjkPattern = R"([一-龥぀-ゟ゠-ヿ]+)";
inline constexpr std::string_view kDeepSeekV3Pattern =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// DeepSeek Coder (V1).
inline constexpr std::string_view kLineEndPattern = R"([\r\n])";
inline constexpr std::string_view kSpacedLettersPattern = R"(\s?\p{L}+)";
inline constexpr std::string_view kSpacedPunctuationPattern = R"(\s?\p{P}+)";
inline constexpr std::string_view kDeepSeekV1CjkPattern = R"([一-龥ࠀ-一가-퟿]+)";

// Digits, one by one or as runs.
inline constexpr std::string_view kDigitPattern = R"(\p{N})";
inline constexpr std::string_view kDigitRunPattern = R"(\p{N}+)";

}  // namespace hayate::text
