#include "api/request_fields.h"

#include <limits>

#include "api/sampling_fields.h"
#include "api/tool_fields.h"

namespace hayate::api {

void ReadRequestFields(FieldReader& fields, const ServedModel& model, GenerationSpec& spec) {
  using Seed = std::numeric_limits<int64_t>;
  ReadSamplingFields(fields, model, spec);
  spec.model = fields.String("model").value_or("");
  spec.sampling.min_new_tokens =
      static_cast<int32_t>(fields.Int("min_tokens", 0, model.max_context).value_or(0));
  spec.seed = fields.Int("seed", Seed::min(), Seed::max());
  spec.stream = fields.Bool("stream").value_or(false);
  for (const char* name : {"cache_salt", "extra_key"}) {
    if (const auto key = fields.String(name); key && !key->empty()) {
      // Length first, so that ("ab", "c") and ("a", "bc") differ.
      spec.cache_namespace += std::to_string(key->size()) + ":" + std::string(*key);
    }
  }
  spec.priority = static_cast<int32_t>(fields.Int("priority", -1'000'000, 1'000'000).value_or(0));
  spec.deadline_ms = fields.Int("deadline_ms", 1, GenerationSpec::kMaxDeadlineMs);
  spec.request_ids = ReadRequestIds(fields, 1);
}

void ChooseAnswerFormat(const ServedModel& model, GenerationSpec& spec) {
  spec.format.reasoning = model.reasoning;
  if (!spec.tools.active()) return;
  // A model without a dialect of its own calls by a grammar, or not at all.
  const bool demanded = spec.tools.demanded();
  const bool knows = model.tools != nullptr && !(demanded && model.tools->call_mid.empty());
  if (knows) spec.format.tools = model.tools;
  if (!knows && demanded) spec.format.tools = &text::PlainToolDialect();
  spec.format.signatures = SignaturesOf(spec.tools);
}

}  // namespace hayate::api
