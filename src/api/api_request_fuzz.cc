// Any body through the request parsers, the reader of key files and the preparation of prompts: it
// is refused with a message that names something, or gives token ids of the vocabulary that fit the
// context. The first byte picks the parser.

#include <cstdint>
#include <string_view>

#include "api/access_control.h"
#include "api/embedding_parse.h"
#include "api/error_table.h"
#include "api/field_reader.h"
#include "api/messages_parse.h"
#include "api/native_parse.h"
#include "api/ollama_parse.h"
#include "api/openai_parse.h"
#include "api/prepare.h"
#include "api/responses_items.h"
#include "api/responses_parse.h"
#include "api/score_parse.h"
#include "api/testing/byte_model.h"
#include "base/check.h"

namespace hayate::api {
namespace {

// An earlier response, of any name.
Result<std::vector<std::string>> EarlierItems(std::string_view) {
  return std::vector<std::string>{
      R"({"type":"message","role":"user","content":"a"})",
      R"({"id":"rs_1","type":"reasoning","summary":[],"content":[]})",
      R"({"id":"fc_1","type":"function_call","call_id":"c","name":"f","arguments":"{"})"};
}

Result<GenerationSpec> Parse(uint8_t dialect, simdjson::dom::object body, const ServedModel& model,
                             std::vector<std::string>& unknown) {
  switch (dialect % 11) {
    case 0:
      return ParseChatRequest(body, model, unknown);
    case 1:
      return ParseCompletionRequest(body, model, unknown);
    case 2:
      return ParseGenerateRequest(body, model, unknown);
    case 3:
      return ParseResponsesRequest(body, model, FindConversation(EarlierItems), unknown);
    case 4:
      return ParseMessagesRequest(body, model, MessagesUse::kGenerate, unknown);
    case 5:
      return ParseOllamaChat(body, model, unknown);
    case 6:
      return ParseOllamaGenerate(body, model, unknown);
    case 7:
      return ParseScoreRequest(body, model, unknown);
    case 8:
      return ParseRerankRequest(body, model, unknown);
    case 9:
      return ParseEmbeddingRequest(body, model, unknown);
    default:
      return ParseMessagesRequest(body, model, MessagesUse::kCount, unknown);
  }
}

// What /v1/responses keeps and shows must be JSON whatever it was made of, and must be readable as
// the beginning of the next turn.
void CheckResponse(const GenerationSpec& spec, const ServedModel& model) {
  simdjson::dom::parser parser;
  const std::string echo = "{" + spec.response->echo + "}";
  CHECK(parser.parse(echo).error() == simdjson::SUCCESS) << echo;
  std::string items = "[";
  for (const std::string& item : *spec.response->input) {
    items += (items.size() > 1 ? "," : "") + item;
  }
  items += "]";
  simdjson::dom::element list;
  CHECK(parser.parse(items).get(list) == simdjson::SUCCESS) << items;
  ConversationBuilder conversation(*model.chat_template);
  std::vector<std::string> again;
  const Status read = ReadResponsesItems(list, "input", conversation, again);
  CHECK(read.ok()) << read.message();
  CHECK(again == *spec.response->input);
}

void CheckSpec(const GenerationSpec& spec, const ServedModel& model) {
  const SamplingParams& sampling = spec.sampling;
  CHECK(sampling.temperature >= 0 && sampling.top_p > 0 && sampling.top_p <= 1);
  CHECK(sampling.top_k >= 0 && sampling.top_k <= model.vocab_size);
  CHECK(sampling.min_p >= 0 && sampling.min_p <= 1 && sampling.repetition_penalty > 0);
  CHECK(spec.n >= 1 && spec.n <= GenerationSpec::kMaxChoices);
  CHECK(!spec.prompts.empty() && spec.prompts.size() <= GenerationSpec::kMaxPrompts);
  CHECK(spec.logprobs.num_top >= 0 && spec.logprobs.num_top <= LogprobParams::kMaxTop);
  for (const TokenId id : spec.stop_token_ids) CHECK(id >= 0 && id < model.vocab_size) << id;
}

void CheckError(const Status& status) {
  CHECK(!status.message().empty());
  simdjson::dom::parser parser;
  CHECK(parser.parse(ErrorBody(status)).error() == simdjson::SUCCESS) << status.message();
}

void Run(uint8_t dialect, std::string_view text) {
  static const ServedModel model = [] {
    ServedModel bytes = testing::ByteModel();
    bytes.embedding_size = 8;
    return bytes;
  }();
  if (const auto keys = ParseKeyFile(text); !keys.ok()) CheckError(keys.status());
  simdjson::dom::parser parser;
  const auto body = ParseBody(parser, text);
  if (!body.ok()) return CheckError(body.status());
  std::vector<std::string> unknown;
  const auto spec = Parse(dialect, *body, model, unknown);
  if (!spec.ok()) return CheckError(spec.status());
  CheckSpec(*spec, model);
  if (spec->response) CheckResponse(*spec, model);
  const auto prepared = Prepare(*spec, model);
  if (!prepared.ok()) return CheckError(prepared.status());
  CHECK_EQ(prepared->prompts.size(), spec->prompts.size());
  for (const PreparedPrompt& prompt : prepared->prompts) {
    CHECK(!prompt.ids.empty());
    for (const TokenId id : prompt.ids) CHECK(id >= 0 && id < model.vocab_size) << id;
    CHECK_LE(static_cast<int64_t>(prompt.ids.size()) + prompt.max_new_tokens, model.max_context);
  }
}

}  // namespace
}  // namespace hayate::api

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  hayate::api::Run(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
