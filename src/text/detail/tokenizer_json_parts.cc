#include "text/detail/tokenizer_json_parts.h"

#include "base/error.h"
#include "text/detail/merge_resolver.h"
#include "text/detail/regex.h"
#include "text/tokenizer.h"
#include "text/tokenizer_patterns.h"

namespace hayate::text {
namespace {

// {"String": "x"} or {"Regex": "x"}.
struct Pattern {
  std::string_view text;
  bool is_regex;
};

Result<Pattern> ReadPattern(const JsonNode& owner) {
  ASSIGN_OR_RETURN(const JsonNode pattern, owner.Required("pattern"));
  if (const auto regex = pattern.Member("Regex")) {
    ASSIGN_OR_RETURN(const std::string_view text, regex->AsString());
    return Pattern{text, true};
  }
  ASSIGN_OR_RETURN(const std::string_view text, pattern.String("String"));
  return Pattern{text, false};
}

Result<SplitBehavior> ReadBehavior(const JsonNode& split) {
  ASSIGN_OR_RETURN(const std::string_view name, split.String("behavior"));
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return split.Unsupported(fmt::format("behavior '{}'", name));
}

Status ReadMetaspace(const JsonNode& metaspace, std::vector<PreTokenizerStep>& steps) {
  ASSIGN_OR_RETURN(const std::string_view marker, metaspace.StringOr("replacement", "▁"));
  ASSIGN_OR_RETURN(const bool add_prefix, metaspace.BoolOr("add_prefix_space", true));
  ASSIGN_OR_RETURN(const std::string_view scheme,
                   metaspace.StringOr("prepend_scheme", add_prefix ? "always" : "never"));
  ASSIGN_OR_RETURN(const bool split, metaspace.BoolOr("split", true));
  steps.push_back(SubstituteText{" ", std::string(marker)});
  if (scheme == "always" || scheme == "first") {
    steps.push_back(EnsurePrefix{
        std::string(marker), scheme == "first" ? PrefixWhen::kStartOfText : PrefixWhen::kAlways});
  } else if (scheme != "never") {
    return metaspace.Unsupported(fmt::format("prepend_scheme '{}'", scheme));
  }
  if (split) {
    steps.push_back(SplitText{Regex::Escape(marker), SplitBehavior::kMergedWithNext});
  }
  return OkStatus();
}

Status ReadTemplatePiece(const JsonNode& piece, const JsonNode& post_processor,
                         std::vector<int32_t>& ids) {
  ASSIGN_OR_RETURN(const std::string_view name, piece.String("id"));
  ASSIGN_OR_RETURN(const JsonNode tokens, post_processor.Required("special_tokens"));
  ASSIGN_OR_RETURN(const JsonNode token, tokens.Required(name));
  ASSIGN_OR_RETURN(const JsonNode id_list, token.Required("ids"));
  ASSIGN_OR_RETURN(const std::vector<JsonNode> elements, id_list.Elements());
  for (const JsonNode& element : elements) {
    ASSIGN_OR_RETURN(const int64_t id, element.AsInt());
    if (id < 0 || id >= static_cast<int64_t>(Tokenizer::kMaxVocabSize)) {
      return element.Invalid("not a token id");
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return OkStatus();
}

// [ {"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, … ]
Status ReadTemplate(const JsonNode& post_processor, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const JsonNode single, post_processor.Required("single"));
  ASSIGN_OR_RETURN(const std::vector<JsonNode> pieces, single.Elements());
  bool behind_text = false;
  for (const JsonNode& piece : pieces) {
    if (piece.Member("Sequence")) {
      if (behind_text) return piece.Unsupported("the text occurs twice");
      behind_text = true;
      continue;
    }
    ASSIGN_OR_RETURN(const JsonNode token, piece.Required("SpecialToken"));
    RETURN_IF_ERROR(
        ReadTemplatePiece(token, post_processor, behind_text ? spec.suffix_ids : spec.prefix_ids));
  }
  return OkStatus();
}

// Calls read(part) for each part of a Sequence, or for the node itself.
template <typename Read>
Status ForEachPart(const JsonNode& node, std::string_view list_key, Read read) {
  ASSIGN_OR_RETURN(const std::string_view type, node.String("type"));
  if (type != "Sequence") return read(node, type);
  ASSIGN_OR_RETURN(const JsonNode list, node.Required(list_key));
  ASSIGN_OR_RETURN(const std::vector<JsonNode> parts, list.Elements());
  for (const JsonNode& part : parts) RETURN_IF_ERROR(ForEachPart(part, list_key, read));
  return OkStatus();
}

Status ReadVocab(const JsonNode& vocab, std::vector<std::string>& tokens) {
  simdjson::dom::object object;
  if (vocab.value().get(object) != simdjson::SUCCESS) return vocab.Invalid("not an object");
  for (const auto field : object) {
    int64_t id = -1;
    if (field.value.get(id) != simdjson::SUCCESS || id < 0 ||
        id >= static_cast<int64_t>(Tokenizer::kMaxVocabSize)) {
      return vocab.Invalid(
          fmt::format("token '{}' has no id in [0, {})", field.key, Tokenizer::kMaxVocabSize));
    }
    if (tokens.size() <= static_cast<size_t>(id)) tokens.resize(static_cast<size_t>(id) + 1);
    tokens[static_cast<size_t>(id)] = field.key;
  }
  return OkStatus();
}

Status ReadMerges(const JsonNode& merges, const MergeResolver& resolver,
                  std::vector<MergeRule>& rules) {
  simdjson::dom::array array;
  if (merges.value().get(array) != simdjson::SUCCESS) return merges.Invalid("not an array");
  rules.reserve(array.size());
  for (const simdjson::dom::element merge : array) {
    std::string_view joined, left, right;
    Result<MergeRule> rule = Status(ErrorCode::kInvalidArgument, "neither a string nor two");
    if (merge.get(joined) == simdjson::SUCCESS) {
      rule = resolver.Resolve(joined, rules.size());
    } else if (merge.at(0).get(left) == simdjson::SUCCESS &&
               merge.at(1).get(right) == simdjson::SUCCESS) {
      rule = resolver.Resolve(left, right, rules.size());
    }
    if (!rule.ok()) return rule.status().Under(fmt::format("{}[{}]", merges.place(), rules.size()));
    rules.push_back(*rule);
  }
  return OkStatus();
}

}  // namespace

Status ReadModel(const JsonNode& model, BpeSpec& bpe) {
  ASSIGN_OR_RETURN(const std::string_view type, model.StringOr("type", "BPE"));
  if (type != "BPE")
    return model.Unsupported(fmt::format("model type '{}'; only BPE is known", type));
  for (const std::string_view affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    ASSIGN_OR_RETURN(const std::string_view text, model.StringOr(affix, ""));
    if (!text.empty()) return model.Unsupported(fmt::format("{} '{}'", affix, text));
  }
  ASSIGN_OR_RETURN(bpe.byte_fallback, model.BoolOr("byte_fallback", false));
  ASSIGN_OR_RETURN(bpe.fuse_unk, model.BoolOr("fuse_unk", false));
  ASSIGN_OR_RETURN(bpe.ignore_merges, model.BoolOr("ignore_merges", false));

  ASSIGN_OR_RETURN(const JsonNode vocab, model.Required("vocab"));
  RETURN_IF_ERROR(ReadVocab(vocab, bpe.tokens));
  const MergeResolver resolver(bpe.tokens);
  ASSIGN_OR_RETURN(const JsonNode merges, model.Required("merges"));
  RETURN_IF_ERROR(ReadMerges(merges, resolver, bpe.merges));

  ASSIGN_OR_RETURN(const std::string_view unk, model.StringOr("unk_token", ""));
  if (unk.empty()) return OkStatus();
  const int32_t* unk_id = resolver.Find(unk);
  if (unk_id == nullptr) return model.Invalid(fmt::format("unk_token '{}' is not in vocab", unk));
  bpe.unk_id = *unk_id;
  return OkStatus();
}

Status ReadNormalizer(const JsonNode& normalizer, std::vector<NormalizerStep>& steps) {
  return ForEachPart(normalizer, "normalizers", [&](const JsonNode& part, std::string_view type) {
    if (type == "NFC") {
      steps.push_back(UnicodeForm::kNfc);
    } else if (type == "NFD") {
      steps.push_back(UnicodeForm::kNfd);
    } else if (type == "NFKC") {
      steps.push_back(UnicodeForm::kNfkc);
    } else if (type == "NFKD") {
      steps.push_back(UnicodeForm::kNfkd);
    } else if (type == "Prepend") {
      ASSIGN_OR_RETURN(const std::string_view text, part.String("prepend"));
      steps.push_back(PrependText{std::string(text)});
    } else if (type == "Replace") {
      ASSIGN_OR_RETURN(const Pattern pattern, ReadPattern(part));
      ASSIGN_OR_RETURN(const std::string_view to, part.String("content"));
      if (pattern.is_regex) {
        steps.push_back(SubstitutePattern{std::string(pattern.text), std::string(to)});
      } else {
        steps.push_back(SubstituteText{std::string(pattern.text), std::string(to)});
      }
    } else if (type == "Strip") {
      ASSIGN_OR_RETURN(const bool left, part.BoolOr("strip_left", false));
      ASSIGN_OR_RETURN(const bool right, part.BoolOr("strip_right", false));
      if (left || right) {
        steps.push_back(left && right ? StripSide::kBoth
                        : left        ? StripSide::kLeft
                                      : StripSide::kRight);
      }
    } else {
      return part.Unsupported(fmt::format("normalizer '{}' is not known", type));
    }
    return OkStatus();
  });
}

Status ReadPreTokenizer(const JsonNode& pre_tokenizer, TokenizerSpec& spec) {
  auto& steps = spec.pre_tokenizer;
  return ForEachPart(
      pre_tokenizer, "pretokenizers", [&](const JsonNode& part, std::string_view type) {
        if (spec.bpe.byte_level) return part.Unsupported(fmt::format("{} behind ByteLevel", type));
        if (type == "Split") {
          ASSIGN_OR_RETURN(const Pattern pattern, ReadPattern(part));
          ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(part));
          ASSIGN_OR_RETURN(const bool invert, part.BoolOr("invert", false));
          steps.push_back(
              SplitText{pattern.is_regex ? std::string(pattern.text) : Regex::Escape(pattern.text),
                        behavior, invert ? SplitAt::kGaps : SplitAt::kMatches});
        } else if (type == "Digits") {
          ASSIGN_OR_RETURN(const bool individual, part.BoolOr("individual_digits", false));
          steps.push_back(SplitText{std::string(individual ? kDigitPattern : kDigitRunPattern)});
        } else if (type == "ByteLevel") {
          ASSIGN_OR_RETURN(const bool add_prefix, part.BoolOr("add_prefix_space", true));
          ASSIGN_OR_RETURN(const bool use_regex, part.BoolOr("use_regex", true));
          if (add_prefix) steps.push_back(EnsurePrefix{" "});
          if (use_regex) steps.push_back(SplitText{std::string(kGpt2Pattern)});
          spec.bpe.byte_level = true;
        } else if (type == "Metaspace") {
          return ReadMetaspace(part, steps);
        } else {
          return part.Unsupported(fmt::format("pre-tokenizer '{}' is not known", type));
        }
        return OkStatus();
      });
}

Status ReadDecoder(const JsonNode& decoder, TokenizerSpec& spec) {
  bool fused = false;
  return ForEachPart(decoder, "decoders", [&](const JsonNode& part, std::string_view type) {
    if (type == "ByteLevel") {
      if (!spec.bpe.byte_level) return part.Unsupported("the pre-tokenizer is not ByteLevel");
    } else if (type == "Fuse") {
      fused = true;
    } else if (type == "ByteFallback") {
      // Follows from model.byte_fallback.
    } else if (type == "Metaspace") {
      ASSIGN_OR_RETURN(const std::string_view marker, part.StringOr("replacement", "▁"));
      ASSIGN_OR_RETURN(const std::string_view scheme, part.StringOr("prepend_scheme", "always"));
      spec.decoder = {std::string(marker), scheme != "never"};
    } else if (type == "Replace") {
      ASSIGN_OR_RETURN(const Pattern pattern, ReadPattern(part));
      ASSIGN_OR_RETURN(const std::string_view to, part.String("content"));
      if (pattern.is_regex || to != " ")
        return part.Unsupported("only a literal replaced by a space");
      spec.decoder.space_marker = pattern.text;
    } else if (type == "Strip") {
      ASSIGN_OR_RETURN(const std::string_view what, part.StringOr("content", " "));
      const auto start = part.Member("start"), stop = part.Member("stop");
      const int64_t num_start = start ? start->AsInt().ok() ? start->AsInt().value() : -1 : 0;
      const int64_t num_stop = stop ? stop->AsInt().ok() ? stop->AsInt().value() : -1 : 0;
      if (what != " " || !fused || num_start < 0 || num_start > 1 || num_stop != 0) {
        return part.Unsupported("only one space at the start of the fused text can be stripped");
      }
      spec.decoder.strip_leading_space = num_start == 1;
    } else {
      return part.Unsupported(fmt::format("decoder '{}' is not known", type));
    }
    return OkStatus();
  });
}

Status ReadPostProcessor(const JsonNode& post_processor, TokenizerSpec& spec) {
  return ForEachPart(
      post_processor, "processors", [&](const JsonNode& part, std::string_view type) {
        if (type == "ByteLevel") return OkStatus();  // moves offsets only
        if (type == "TemplateProcessing") return ReadTemplate(part, spec);
        return part.Unsupported(fmt::format("post-processor '{}' is not known", type));
      });
}

}  // namespace hayate::text
