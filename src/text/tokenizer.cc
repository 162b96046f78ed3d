#include "text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/detail/added_token_matcher.h"
#include "text/detail/bpe.h"
#include "text/detail/id_bound.h"
#include "text/detail/normalizer.h"
#include "text/detail/pre_tokenizer.h"
#include "text/detail/utf8.h"
#include "text/detokenizer.h"

namespace hayate::text {
namespace {

// "<0x0A>" → the byte 10.
std::optional<char> ByteOfFallbackToken(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling.back() != '>') return {};
  int value = 0;
  for (const char c : spelling.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return {};
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

// What a vocabulary token adds to the text.
std::string BytesOfToken(const TokenizerSpec& spec, const Bpe& bpe, int32_t id) {
  const std::string& token = spec.bpe.tokens[static_cast<size_t>(id)];
  if (spec.bpe.byte_level) {
    const std::string_view bytes = bpe.spelling(id);
    return bytes.empty() ? token : std::string(bytes);
  }
  if (spec.bpe.byte_fallback) {
    if (const auto byte = ByteOfFallbackToken(token)) return std::string(1, *byte);
  }
  std::string bytes = token;
  Substitute({spec.decoder.space_marker, " "}, bytes);
  return bytes;
}

Status CheckId(std::string_view what, int32_t id, size_t end) {
  if (id >= 0 && static_cast<size_t>(id) < end) return OkStatus();
  return Error(ErrorCode::kInvalidArgument, "{}: id {} is not in [0, {})", what, id, end);
}

// One past the largest id of the spec; every id in it is checked.
Result<size_t> CheckedVocabSize(const TokenizerSpec& spec) {
  size_t size = spec.bpe.tokens.size();
  if (size == 0 || size > Tokenizer::kMaxVocabSize) {
    return Error(ErrorCode::kInvalidArgument, "a vocabulary of {} tokens, not 1 to {}", size,
                 Tokenizer::kMaxVocabSize);
  }
  for (const AddedToken& token : spec.added_tokens) {
    RETURN_IF_ERROR(
        CheckId("added token '" + token.content + "'", token.id, Tokenizer::kMaxVocabSize));
    size = std::max(size, static_cast<size_t>(token.id) + 1);
  }
  for (const int32_t id : spec.prefix_ids) RETURN_IF_ERROR(CheckId("prefix", id, size));
  for (const int32_t id : spec.suffix_ids) RETURN_IF_ERROR(CheckId("suffix", id, size));
  if (spec.bos_id) RETURN_IF_ERROR(CheckId("bos", *spec.bos_id, size));
  if (spec.eos_id) RETURN_IF_ERROR(CheckId("eos", *spec.eos_id, size));
  return size;
}

}  // namespace

struct Tokenizer::Parts {
  Bpe bpe;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  AddedTokenMatcher raw_tokens;         // searched in the text as it came
  AddedTokenMatcher normalized_tokens;  // searched after normalisation
  std::vector<AddedToken> added_tokens;
  std::vector<std::string> token_bytes;  // by id
  std::vector<bool> is_special;          // by id
  TokenTable token_by_bytes;
  IdBound id_bound;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::vector<int32_t> prefix_ids;
  std::vector<int32_t> suffix_ids;
  bool strip_leading_space;
};

namespace {

// One Encode call: its options, buffers and output.
struct Encoding final : PieceSink {
  Encoding(const Bpe& model, std::vector<int32_t>& out) : bpe(model), ids(out) {}
  void Take(std::string_view piece) override { bpe.Encode(piece, bpe_scratch, ids); }

  const Bpe& bpe;
  std::vector<int32_t>& ids;
  BpeScratch bpe_scratch;
  RegexScratch regex_scratch;
};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  ASSIGN_OR_RETURN(const size_t vocab_size, CheckedVocabSize(spec));
  ASSIGN_OR_RETURN(Bpe bpe, Bpe::Create(spec.bpe, spec.decoder.space_marker));
  ASSIGN_OR_RETURN(Normalizer normalizer, Normalizer::Create(spec.normalizer));
  ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::Create(spec.pre_tokenizer));

  std::vector<std::string> token_bytes(vocab_size);
  std::vector<bool> is_special(vocab_size);
  for (size_t id = 0; id < spec.bpe.tokens.size(); ++id) {
    token_bytes[id] = BytesOfToken(spec, bpe, static_cast<int32_t>(id));
  }
  AddedTokenMatcher raw_tokens, normalized_tokens;
  const RegexScratch scratch;
  for (const AddedToken& token : spec.added_tokens) {
    std::string pattern = token.content;
    if (token.normalized) RETURN_IF_ERROR(normalizer.Apply(pattern, scratch));
    (token.normalized ? normalized_tokens : raw_tokens).Add(pattern, token);
    Substitute({spec.decoder.space_marker, " "}, pattern);
    token_bytes[static_cast<size_t>(token.id)] = std::move(pattern);
    is_special[static_cast<size_t>(token.id)] = token.special;
  }
  TokenTable token_by_bytes(vocab_size + spec.added_tokens.size());
  const auto insert = [&](int32_t id) {
    const std::string& bytes = token_bytes[static_cast<size_t>(id)];
    if (!bytes.empty()) token_by_bytes.Insert(bytes, id);
  };
  for (const AddedToken& token : spec.added_tokens) token_by_bytes.Insert(token.content, token.id);
  for (size_t id = 0; id < vocab_size; ++id) insert(static_cast<int32_t>(id));
  const IdBound id_bound(spec, token_bytes);

  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::unique_ptr<const Parts>(new Parts{
      .bpe = std::move(bpe),
      .normalizer = std::move(normalizer),
      .pre_tokenizer = std::move(pre_tokenizer),
      .raw_tokens = std::move(raw_tokens),
      .normalized_tokens = std::move(normalized_tokens),
      .added_tokens = std::move(spec.added_tokens),
      .token_bytes = std::move(token_bytes),
      .is_special = std::move(is_special),
      .token_by_bytes = std::move(token_by_bytes),
      .id_bound = id_bound,
      .bos_id = spec.bos_id,
      .eos_id = spec.eos_id,
      .prefix_ids = std::move(spec.prefix_ids),
      .suffix_ids = std::move(spec.suffix_ids),
      .strip_leading_space = spec.decoder.strip_leading_space,
  })));
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kMaxTextBytes) {
    return Error(ErrorCode::kPayloadTooLarge, "text of {} bytes is over the limit of {}",
                 text.size(), kMaxTextBytes);
  }
  if (const size_t bad = FindInvalidUtf8(text); bad != std::string_view::npos) {
    return Error(ErrorCode::kInvalidArgument, "text is not UTF-8 at byte {}", bad);
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  const bool add_bos_eos = options.add_bos_eos == AddBosEos::kYes;
  if (add_bos_eos) ids = parts_->prefix_ids;

  Encoding encoding(parts_->bpe, ids);
  std::string normalized;
  for (const auto& raw : parts_->raw_tokens.Split(text, options.special_tokens)) {
    if (raw.id != kNoToken) {
      ids.push_back(raw.id);
      continue;
    }
    std::string_view stretch = text.substr(raw.begin, raw.end - raw.begin);
    if (!parts_->normalizer.empty()) {
      normalized = stretch;
      RETURN_IF_ERROR(parts_->normalizer.Apply(normalized, encoding.regex_scratch));
      stretch = normalized;
    }
    for (const auto& part : parts_->normalized_tokens.Split(stretch, options.special_tokens)) {
      if (part.id != kNoToken) {
        ids.push_back(part.id);
        continue;
      }
      RETURN_IF_ERROR(parts_->pre_tokenizer.Run(
          {stretch.substr(part.begin, part.end - part.begin), raw.begin == 0 && part.begin == 0},
          encoding.regex_scratch, encoding));
    }
  }
  if (add_bos_eos) ids.insert(ids.end(), parts_->suffix_ids.begin(), parts_->suffix_ids.end());
  return ids;
}

size_t Tokenizer::MinIds(std::string_view text) const { return parts_->id_bound.MinIds(text); }

std::string Tokenizer::Decode(std::span<const int32_t> ids, SkipSpecial skip) const {
  const std::shared_ptr<const Tokenizer> unowned(std::shared_ptr<const Tokenizer>(), this);
  Detokenizer detokenizer(unowned, {.skip_special = skip});
  std::string text = detokenizer.Push(ids);
  return text += detokenizer.Flush();
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return parts_->token_bytes[static_cast<size_t>(id)];
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && id < vocab_size() && parts_->is_special[static_cast<size_t>(id)];
}

std::optional<int32_t> Tokenizer::FindToken(std::string_view bytes) const {
  const int32_t id = parts_->token_by_bytes.Find(bytes);
  if (id == kNoToken) return std::nullopt;
  return id;
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(parts_->token_bytes.size()); }
std::optional<int32_t> Tokenizer::bos_id() const { return parts_->bos_id; }
std::optional<int32_t> Tokenizer::eos_id() const { return parts_->eos_id; }
std::span<const int32_t> Tokenizer::prefix_ids() const { return parts_->prefix_ids; }
std::span<const int32_t> Tokenizer::suffix_ids() const { return parts_->suffix_ids; }
bool Tokenizer::strips_leading_space() const { return parts_->strip_leading_space; }

}  // namespace hayate::text
