#include "api/embedding_parse.h"

#include "api/field_reader.h"
#include "base/error.h"

namespace hayate::api {
namespace {

using simdjson::dom::element;

// A text, token ids, or a list of either.
Status ReadInputs(FieldReader& fields, const ServedModel& model, GenerationSpec& spec) {
  const auto input = fields.Any("input");
  if (!input) return InvalidField("input", "is missing");
  std::string_view text;
  if (input->get(text) == simdjson::SUCCESS) {
    spec.prompts.emplace_back(std::string(text));
    return OkStatus();
  }
  simdjson::dom::array list;
  if (input->get(list) != simdjson::SUCCESS || list.size() == 0) {
    return InvalidField("input", "must be a text, token ids, or a list of either, not empty");
  }
  if (list.at(0).is_number()) {
    ASSIGN_OR_RETURN(auto ids, ReadTokenIds(list, "input", model.vocab_size));
    spec.prompts.emplace_back(std::move(ids));
    return OkStatus();
  }
  for (const element item : list) {
    const std::string where = "input[" + std::to_string(spec.prompts.size()) + "]";
    if (spec.prompts.size() == GenerationSpec::kMaxPrompts) {
      return InvalidField("input", "holds more than {} texts", GenerationSpec::kMaxPrompts);
    }
    simdjson::dom::array ids;
    if (item.get(text) == simdjson::SUCCESS) {
      spec.prompts.emplace_back(std::string(text));
    } else if (item.get(ids) == simdjson::SUCCESS) {
      ASSIGN_OR_RETURN(auto read, ReadTokenIds(ids, where, model.vocab_size));
      spec.prompts.emplace_back(std::move(read));
    } else {
      return InvalidField(where, "must be a text or a list of token ids");
    }
  }
  return OkStatus();
}

}  // namespace

Result<GenerationSpec> ParseEmbeddingRequest(simdjson::dom::object body, const ServedModel& model,
                                             std::vector<std::string>& unknown) {
  if (model.embedding_size == 0) {
    return Status(ErrorCode::kUnsupported, "this model gives no embeddings here");
  }
  FieldReader fields(body);
  GenerationSpec spec;
  spec.dialect = Dialect::kEmbedding;
  spec.sampling.temperature = 0.0f;
  spec.max_new_tokens = 1;  // drawn at the last position, and not read
  spec.logprobs.hidden = true;
  spec.model = fields.String("model").value_or("");
  EmbeddingFields& embedding = spec.embedding.emplace();
  const std::string_view format = fields.String("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    fields.Fail("encoding_format", "must be float or base64");
  }
  embedding.base64 = format == "base64";
  embedding.dimensions = fields.Int("dimensions", 1, model.embedding_size);
  const std::string_view pooling = fields.String("pooling").value_or("last");
  if (pooling != "last" && pooling != "mean") fields.Fail("pooling", "must be last or mean");
  if (pooling == "mean") spec.logprobs.prompt_start = 0;
  spec.priority = static_cast<int32_t>(fields.Int("priority", -1'000'000, 1'000'000).value_or(0));
  fields.Ignore("user");
  RETURN_IF_ERROR(fields.status());
  RETURN_IF_ERROR(ReadInputs(fields, model, spec));
  unknown = fields.Unread();
  return spec;
}

}  // namespace hayate::api
