#include "app/answer_dialects.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "text/dialect/answer_parser.h"

namespace hayate::app {
namespace {

template <typename Dialects>
std::string NamesOf(const Dialects& dialects) {
  std::string names = "auto, none";
  for (const auto& dialect : dialects) names += ", " + std::string(dialect.name);
  return names;
}

// Control tokens are hidden from an answer's text; those that spell markers must show.
std::vector<TokenId> MarkerIds(const api::ServedModel& model) {
  std::vector<TokenId> ids;
  for (const std::string& marker : text::MarkersOf(model.reasoning, model.tools)) {
    const auto id = model.tokenizer->FindToken(marker);
    if (id && model.tokenizer->IsSpecial(*id)) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

Status SetUpDialects(const DialectOptions& options, const Clock& clock, api::ServedModel& model) {
  const std::string& source = model.chat_template->source();
  if (options.reasoning_parser == "auto") {
    model.reasoning = text::DetectReasoningDialect(source);
  } else if (options.reasoning_parser != "none") {
    model.reasoning = text::FindReasoningDialect(options.reasoning_parser);
    if (model.reasoning == nullptr) {
      return Error(ErrorCode::kInvalidArgument, "--reasoning-parser {} is none of {}",
                   options.reasoning_parser, NamesOf(text::ReasoningDialects()));
    }
  }
  if (options.tool_call_parser == "auto") {
    model.tools = text::DetectToolDialect(source);
  } else if (options.tool_call_parser != "none") {
    model.tools = text::FindToolDialect(options.tool_call_parser);
    if (model.tools == nullptr) {
      return Error(ErrorCode::kInvalidArgument, "--tool-call-parser {} is none of {}",
                   options.tool_call_parser, NamesOf(text::ToolDialects()));
    }
  }
  model.marker_ids = MarkerIds(model);
  LOG_INFO("thinking: {}, tool calls: {}",
           model.reasoning != nullptr ? model.reasoning->name : "not told apart",
           model.tools != nullptr ? model.tools->name : "by grammar only");
  if (options.grammar_backend == "none") return OkStatus();
  ASSIGN_OR_RETURN(auto vocabulary,
                   grammar::Vocabulary::Create(*model.tokenizer, {.vocab_size = model.vocab_size,
                                                                  .stop_ids = model.eos_ids,
                                                                  .marker_ids = model.marker_ids}));
  model.grammars = std::make_shared<grammar::GrammarCompiler>(
      std::move(vocabulary),
      grammar::GrammarCompiler::Options{
          .time_limit_ns = static_cast<int64_t>(options.grammar_compile_timeout_s * 1e9)},
      clock);
  return OkStatus();
}

}  // namespace hayate::app
