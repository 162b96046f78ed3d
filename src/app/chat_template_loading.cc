#include "app/chat_template_loading.h"

#include <optional>

#include "base/mapped_file.h"
#include "text/encodings/builtin_templates.h"

namespace hayate::app {
namespace {

constexpr size_t kMaxTemplateFileBytes = size_t{1} << 20;

std::optional<std::string> TextOf(const text::Tokenizer& tokenizer, std::optional<int32_t> id) {
  if (!id) return std::nullopt;
  return std::string(tokenizer.TokenBytes(*id));
}

}  // namespace

Result<std::unique_ptr<const text::ChatTemplate>> LoadChatTemplate(
    const weights::Checkpoint& checkpoint, const text::Tokenizer& tokenizer,
    const std::string& override_path) {
  ASSIGN_OR_RETURN(const weights::SpecialTokens special, checkpoint.ReadSpecialTokens());
  text::SpecialTokenTexts texts;
  texts.bos_token = TextOf(tokenizer, special.bos ? special.bos : tokenizer.bos_id());
  texts.eos_token = TextOf(
      tokenizer, special.eos.empty() ? tokenizer.eos_id() : std::optional(special.eos.front()));
  texts.pad_token = TextOf(tokenizer, special.pad);
  texts.unk_token = TextOf(tokenizer, special.unk);

  std::string source;
  if (!override_path.empty()) {
    ASSIGN_OR_RETURN(source, ReadFile(override_path, kMaxTemplateFileBytes));
  } else {
    ASSIGN_OR_RETURN(const auto templates, checkpoint.ChatTemplates());
    source = templates.empty() ? text::BuiltInTemplate(checkpoint.architecture())
                               : std::string_view(templates.front().text);
  }
  if (source.empty()) {
    return std::make_unique<const text::ChatTemplate>(text::ChatTemplate::ChatMl(texts));
  }
  auto compiled = text::ChatTemplate::Create(source, texts);
  if (!compiled.ok()) {
    return compiled.status().Under(override_path.empty() ? "the model's chat template"
                                                         : override_path);
  }
  return std::make_unique<const text::ChatTemplate>(std::move(compiled).value());
}

}  // namespace hayate::app
