// What a checkpoint says about text: tokenizer, chat templates, special tokens.

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "weights/checkpoint.h"
#include "weights/detail/optional_file.h"

namespace hayate::weights {
namespace {

constexpr size_t kMaxTokenizerBytes = size_t{128} << 20;
constexpr size_t kMaxTokenizerConfigBytes = size_t{32} << 20;
constexpr size_t kMaxTemplateBytes = size_t{1} << 20;
constexpr size_t kMaxTemplateFiles = 64;

// Per-token values must be there for every token or for none.
Status CheckPerToken(std::string_view key, size_t count, size_t num_tokens) {
  if (count == 0 || count == num_tokens) return OkStatus();
  return Error(ErrorCode::kDataLoss, "metadata key '{}' has {} values for {} tokens", key, count,
               num_tokens);
}

template <typename To, typename From>
std::vector<To> Narrow(const std::vector<From>& from) {
  std::vector<To> to(from.size());
  std::ranges::transform(from, to.begin(), [](From value) { return static_cast<To>(value); });
  return to;
}

Result<GgufTokenizer> ReadGgufTokenizer(const Metadata& metadata) {
  GgufTokenizer tokenizer;
  ASSIGN_OR_RETURN(tokenizer.model, metadata.GetString("tokenizer.ggml.model"));
  ASSIGN_OR_RETURN(tokenizer.pre, metadata.GetString("tokenizer.ggml.pre", ""));
  ASSIGN_OR_RETURN(tokenizer.tokens, metadata.GetStringArray("tokenizer.ggml.tokens"));
  if (metadata.Has("tokenizer.ggml.merges")) {
    ASSIGN_OR_RETURN(tokenizer.merges, metadata.GetStringArray("tokenizer.ggml.merges"));
  }
  if (metadata.Has("tokenizer.ggml.scores")) {
    ASSIGN_OR_RETURN(const std::vector<double> scores,
                     metadata.GetFloatArray("tokenizer.ggml.scores"));
    tokenizer.scores = Narrow<float>(scores);
  }
  if (metadata.Has("tokenizer.ggml.token_type")) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> types,
                     metadata.GetIntArray("tokenizer.ggml.token_type"));
    tokenizer.token_types = Narrow<int32_t>(types);
  }
  const size_t num_tokens = tokenizer.tokens.size();
  RETURN_IF_ERROR(CheckPerToken("tokenizer.ggml.scores", tokenizer.scores.size(), num_tokens));
  RETURN_IF_ERROR(
      CheckPerToken("tokenizer.ggml.token_type", tokenizer.token_types.size(), num_tokens));
  return tokenizer;
}

// Files write -1 or 2^32 − 1 for "none".
std::optional<int32_t> AsTokenId(int64_t value) {
  if (value < 0 || value > std::numeric_limits<int32_t>::max()) return std::nullopt;
  return static_cast<int32_t>(value);
}

Result<std::optional<int32_t>> ReadTokenId(const Metadata& metadata, std::string_view key) {
  ASSIGN_OR_RETURN(const int64_t value, metadata.GetInt(key, -1));
  return AsTokenId(value);
}

// Appends the ids under `key` (one or an array), each once.
Status AppendTokenIds(const Metadata& metadata, std::string_view key, std::vector<int32_t>& ids) {
  if (!metadata.Has(key)) return OkStatus();
  ASSIGN_OR_RETURN(const std::vector<int64_t> values, metadata.GetIntArray(key));
  for (const int64_t value : values) {
    const std::optional<int32_t> id = AsTokenId(value);
    if (id && std::ranges::find(ids, *id) == ids.end()) ids.push_back(*id);
  }
  return OkStatus();
}

Result<std::optional<bool>> ReadOptionalBool(const Metadata& metadata, std::string_view key) {
  if (!metadata.Has(key)) return std::optional<bool>();
  ASSIGN_OR_RETURN(const bool value, metadata.GetBool(key));
  return std::optional<bool>(value);
}

Result<SpecialTokens> ReadGgufSpecialTokens(const Metadata& metadata) {
  SpecialTokens special;
  ASSIGN_OR_RETURN(special.bos, ReadTokenId(metadata, "tokenizer.ggml.bos_token_id"));
  ASSIGN_OR_RETURN(special.pad, ReadTokenId(metadata, "tokenizer.ggml.padding_token_id"));
  ASSIGN_OR_RETURN(special.unk, ReadTokenId(metadata, "tokenizer.ggml.unknown_token_id"));
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    RETURN_IF_ERROR(AppendTokenIds(metadata, key, special.eos));
  }
  ASSIGN_OR_RETURN(special.add_bos, ReadOptionalBool(metadata, "tokenizer.ggml.add_bos_token"));
  ASSIGN_OR_RETURN(special.add_eos, ReadOptionalBool(metadata, "tokenizer.ggml.add_eos_token"));
  return special;
}

// Templates of tokenizer_config.json: one text, or a list of {name, template}.
Status AppendConfigTemplates(const Metadata& config, std::vector<ChatTemplateSource>& templates) {
  if (config.Has("chat_template")) {
    ASSIGN_OR_RETURN(const std::string_view text, config.GetString("chat_template"));
    templates.push_back({"default", std::string(text)});
  }
  for (int i = 0; config.Has(fmt::format("chat_template.{}.name", i)); ++i) {
    ASSIGN_OR_RETURN(const std::string_view name,
                     config.GetString(fmt::format("chat_template.{}.name", i)));
    ASSIGN_OR_RETURN(const std::string_view text,
                     config.GetString(fmt::format("chat_template.{}.template", i)));
    templates.push_back({std::string(name), std::string(text)});
  }
  return OkStatus();
}

Status AppendGgufTemplates(const Metadata& metadata, std::vector<ChatTemplateSource>& templates) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  if (metadata.Has(kKey)) {
    ASSIGN_OR_RETURN(const std::string_view text, metadata.GetString(kKey));
    templates.push_back({"default", std::string(text)});
  }
  const std::string prefix = std::string(kKey) + ".";
  const Metadata::Map& values = metadata.values();
  for (auto it = values.lower_bound(prefix); it != values.end(); ++it) {
    if (!it->first.starts_with(prefix)) break;
    ASSIGN_OR_RETURN(const std::string_view text, metadata.GetString(it->first));
    templates.push_back({it->first.substr(prefix.size()), std::string(text)});
  }
  return OkStatus();
}

// NAME.jinja files beside the default one, by name.
Status AppendTemplateFiles(const std::filesystem::path& folder,
                           std::vector<ChatTemplateSource>& templates) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".jinja") files.push_back(it->path());
    if (files.size() > kMaxTemplateFiles) {
      return Error(ErrorCode::kInvalidArgument, "{}: more than {} chat templates", folder.string(),
                   kMaxTemplateFiles);
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return Error(ErrorCode::kNotFound, "{}: {}", folder.string(), error.message());
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    ASSIGN_OR_RETURN(std::string text, ReadFile(file, kMaxTemplateBytes));
    templates.push_back({file.stem().string(), std::move(text)});
  }
  return OkStatus();
}

Result<Metadata> ParseTokenizerConfig(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text,
                   detail::ReadOptionalFile(path, kMaxTokenizerConfigBytes));
  if (text.empty()) return Metadata();
  Result<Metadata> config = Metadata::FromJson(text);
  if (!config.ok()) return config.status().Under(path.string());
  return config;
}

}  // namespace

Result<TokenizerSource> Checkpoint::Tokenizer() const {
  if (format_ == CheckpointFormat::kGguf) {
    Result<GgufTokenizer> tokenizer = ReadGgufTokenizer(metadata_);
    if (!tokenizer.ok()) return tokenizer.status().Under(path_.string());
    return TokenizerSource(std::move(tokenizer).value());
  }
  HfTokenizer tokenizer;
  ASSIGN_OR_RETURN(tokenizer.tokenizer_json,
                   ReadFile(directory_ / "tokenizer.json", kMaxTokenizerBytes));
  ASSIGN_OR_RETURN(
      tokenizer.tokenizer_config_json,
      detail::ReadOptionalFile(directory_ / "tokenizer_config.json", kMaxTokenizerConfigBytes));
  return TokenizerSource(std::move(tokenizer));
}

Result<std::vector<ChatTemplateSource>> Checkpoint::ChatTemplates() const {
  std::vector<ChatTemplateSource> templates;
  if (format_ == CheckpointFormat::kGguf) {
    RETURN_IF_ERROR(AppendGgufTemplates(metadata_, templates));
    return templates;
  }
  ASSIGN_OR_RETURN(std::string own_file,
                   detail::ReadOptionalFile(directory_ / "chat_template.jinja", kMaxTemplateBytes));
  if (!own_file.empty()) {
    templates.push_back({"default", std::move(own_file)});
    RETURN_IF_ERROR(AppendTemplateFiles(directory_ / "additional_chat_templates", templates));
    return templates;
  }
  ASSIGN_OR_RETURN(const Metadata config,
                   ParseTokenizerConfig(directory_ / "tokenizer_config.json"));
  RETURN_IF_ERROR(AppendConfigTemplates(config, templates));
  const auto main = std::ranges::find(templates, "default", &ChatTemplateSource::name);
  if (main != templates.end()) std::rotate(templates.begin(), main, main + 1);
  return templates;
}

Result<SpecialTokens> Checkpoint::ReadSpecialTokens() const {
  if (format_ == CheckpointFormat::kGguf) {
    Result<SpecialTokens> special = ReadGgufSpecialTokens(metadata_);
    if (!special.ok()) return special.status().Under(path_.string());
    return special;
  }
  SpecialTokens special;
  ASSIGN_OR_RETURN(special.bos, ReadTokenId(metadata_, "bos_token_id"));
  ASSIGN_OR_RETURN(special.pad, ReadTokenId(metadata_, "pad_token_id"));
  RETURN_IF_ERROR(AppendTokenIds(generation_config_, "eos_token_id", special.eos));
  RETURN_IF_ERROR(AppendTokenIds(metadata_, "eos_token_id", special.eos));
  ASSIGN_OR_RETURN(const Metadata config,
                   ParseTokenizerConfig(directory_ / "tokenizer_config.json"));
  ASSIGN_OR_RETURN(special.add_bos, ReadOptionalBool(config, "add_bos_token"));
  ASSIGN_OR_RETURN(special.add_eos, ReadOptionalBool(config, "add_eos_token"));
  return special;
}

}  // namespace hayate::weights
