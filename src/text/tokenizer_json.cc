#include "text/tokenizer_json.h"

#include <algorithm>

#include "base/error.h"
#include "text/detail/json_node.h"
#include "text/detail/merge_resolver.h"
#include "text/detail/tokenizer_json_parts.h"
#include "text/tokenizer.h"

namespace hayate::text {
namespace {

Result<JsonNode> ParseDocument(simdjson::dom::parser& parser, std::string_view text) {
  simdjson::dom::element root;
  if (const auto error = parser.parse(text.data(), text.size()).get(root)) {
    return Error(ErrorCode::kInvalidArgument, "not JSON: {}", simdjson::error_message(error));
  }
  if (!root.is_object()) return Error(ErrorCode::kInvalidArgument, "not a JSON object");
  return JsonNode(root, "");
}

Result<AddedToken> ReadAddedToken(const JsonNode& node) {
  AddedToken token;
  ASSIGN_OR_RETURN(token.content, node.String("content"));
  ASSIGN_OR_RETURN(const JsonNode id_node, node.Required("id"));
  ASSIGN_OR_RETURN(const int64_t id, id_node.AsInt());
  if (id < 0 || id >= static_cast<int64_t>(Tokenizer::kMaxVocabSize)) {
    return id_node.Invalid("not a token id");
  }
  token.id = static_cast<int32_t>(id);
  ASSIGN_OR_RETURN(token.special, node.BoolOr("special", false));
  ASSIGN_OR_RETURN(token.single_word, node.BoolOr("single_word", false));
  ASSIGN_OR_RETURN(token.lstrip, node.BoolOr("lstrip", false));
  ASSIGN_OR_RETURN(token.rstrip, node.BoolOr("rstrip", false));
  ASSIGN_OR_RETURN(token.normalized, node.BoolOr("normalized", !token.special));
  return token;
}

Status ReadAddedTokens(const JsonNode& list, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const std::vector<JsonNode> nodes, list.Elements());
  const MergeResolver resolver(spec.bpe.tokens);
  for (const JsonNode& node : nodes) {
    ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(node));
    if (token.content.empty()) continue;
    // The vocabulary's id wins over the one written here, as in the reference library.
    if (const int32_t* id = resolver.Find(token.content)) token.id = *id;
    spec.added_tokens.push_back(std::move(token));
  }
  return OkStatus();
}

// A token in tokenizer_config.json is its content, or an object with it.
Result<std::optional<int32_t>> ReadTokenName(const JsonNode& config, std::string_view key,
                                             const TokenizerSpec& spec) {
  const auto member = config.Member(key);
  if (!member) return std::optional<int32_t>();
  const auto content = member->Member("content");
  ASSIGN_OR_RETURN(const std::string_view name, content ? content->AsString() : member->AsString());
  const auto added =
      std::find_if(spec.added_tokens.begin(), spec.added_tokens.end(),
                   [name](const AddedToken& token) { return token.content == name; });
  if (added != spec.added_tokens.end()) return std::optional<int32_t>(added->id);
  const auto token = std::find(spec.bpe.tokens.begin(), spec.bpe.tokens.end(), name);
  if (token == spec.bpe.tokens.end()) {
    return member->Invalid(fmt::format("'{}' is not in the vocabulary", name));
  }
  return std::optional<int32_t>(static_cast<int32_t>(token - spec.bpe.tokens.begin()));
}

// An explicit add_bos_token or add_eos_token overrides the template of tokenizer.json.
Status ReadConfig(const JsonNode& config, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(spec.bos_id, ReadTokenName(config, "bos_token", spec));
  ASSIGN_OR_RETURN(spec.eos_id, ReadTokenName(config, "eos_token", spec));
  const auto override = [&](std::string_view key, std::optional<int32_t> id,
                            std::vector<int32_t>& ids) -> Status {
    if (!config.Member(key)) return OkStatus();
    ASSIGN_OR_RETURN(const bool add, config.BoolOr(key, false));
    ids.clear();
    if (add && id) ids.push_back(*id);
    return OkStatus();
  };
  RETURN_IF_ERROR(override("add_bos_token", spec.bos_id, spec.prefix_ids));
  return override("add_eos_token", spec.eos_id, spec.suffix_ids);
}

Result<TokenizerSpec> ReadTokenizer(const JsonNode& root) {
  TokenizerSpec spec;
  ASSIGN_OR_RETURN(const JsonNode model, root.Required("model"));
  RETURN_IF_ERROR(ReadModel(model, spec.bpe));
  if (const auto node = root.Member("added_tokens")) RETURN_IF_ERROR(ReadAddedTokens(*node, spec));
  if (const auto node = root.Member("normalizer")) {
    RETURN_IF_ERROR(ReadNormalizer(*node, spec.normalizer));
  }
  if (const auto node = root.Member("pre_tokenizer"))
    RETURN_IF_ERROR(ReadPreTokenizer(*node, spec));
  if (const auto node = root.Member("decoder")) RETURN_IF_ERROR(ReadDecoder(*node, spec));
  if (const auto node = root.Member("post_processor")) {
    RETURN_IF_ERROR(ReadPostProcessor(*node, spec));
  }
  return spec;
}

}  // namespace

Result<TokenizerSpec> ParseTokenizerJson(const HfTokenizerFiles& files) {
  simdjson::dom::parser parser;
  Result<JsonNode> root = ParseDocument(parser, files.tokenizer_json);
  if (!root.ok()) return root.status().Under("tokenizer.json");
  Result<TokenizerSpec> spec = ReadTokenizer(*root);
  if (!spec.ok()) return spec.status().Under("tokenizer.json");
  if (files.tokenizer_config_json.empty()) return spec;

  Result<JsonNode> config = ParseDocument(parser, files.tokenizer_config_json);
  if (!config.ok()) return config.status().Under("tokenizer_config.json");
  if (const Status status = ReadConfig(*config, *spec); !status.ok()) {
    return status.Under("tokenizer_config.json");
  }
  return spec;
}

}  // namespace hayate::text
