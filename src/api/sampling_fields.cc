#include "api/sampling_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

namespace hayate::api {
namespace {

constexpr double kMaxTemperature = 100.0;
// Logits are divided by it: smaller ones overflow.
constexpr double kMinRepetitionPenalty = 0.01;
// The model's own end-of-sequence ids come on top.
constexpr size_t kMaxStopTokens = SamplingParams::kMaxStopTokenIds / 2;
constexpr size_t kMaxStopRegexes = text::StopRegexes::kMaxPatterns;
constexpr size_t kMaxRequestId = 256;

void ReadLogitBias(FieldReader& fields, const ServedModel& model, GenerationSpec& spec) {
  const auto bias = fields.Object("logit_bias");
  if (!bias) return;
  if (bias->size() > SamplingParams::kMaxLogitBias) {
    fields.Fail("logit_bias", "holds more than 4096 tokens");
    return;
  }
  for (const auto entry : *bias) {
    int32_t id = -1;
    const auto parsed = std::from_chars(entry.key.data(), entry.key.data() + entry.key.size(), id);
    const bool whole =
        parsed.ec == std::errc() && parsed.ptr == entry.key.data() + entry.key.size();
    double value = 0;
    if (!whole || id < 0 || id >= model.vocab_size) {
      fields.Fail("logit_bias", "keys are token ids, 0 to " + std::to_string(model.vocab_size - 1) +
                                    "; got '" + Shown(entry.key) + "'");
      return;
    }
    if (entry.value.get(value) != simdjson::SUCCESS || !(value >= -100.0 && value <= 100.0)) {
      fields.Fail("logit_bias", "values are numbers between -100 and 100");
      return;
    }
    spec.sampling.logit_bias.emplace_back(id, static_cast<float>(value));
  }
  std::sort(spec.sampling.logit_bias.begin(), spec.sampling.logit_bias.end());
}

void ReadStops(FieldReader& fields, const ServedModel& model, GenerationSpec& spec) {
  std::vector<std::string> stops = fields.Strings("stop", text::StopStrings::kMaxStrings);
  // An empty stop string would end every answer before it begins: it means no stop.
  std::erase(stops, "");
  if (!stops.empty()) {
    auto automaton = text::StopStrings::Create(std::move(stops));
    if (automaton.ok()) {
      spec.stop_strings = std::make_shared<const text::StopStrings>(std::move(automaton).value());
    } else {
      fields.Fail("stop", automaton.status().message());
    }
  }
  std::vector<std::string> expressions = fields.Strings("stop_regex", kMaxStopRegexes);
  std::erase(expressions, "");
  if (!expressions.empty()) {
    auto compiled = text::StopRegexes::Create(std::move(expressions));
    if (compiled.ok()) {
      spec.stop_regexes = std::make_shared<const text::StopRegexes>(*std::move(compiled));
    } else {
      fields.Fail("stop_regex", compiled.status().message());
    }
  }
  spec.stop_token_ids = fields.TokenIds("stop_token_ids", model.vocab_size);
  if (spec.stop_token_ids.size() > kMaxStopTokens) {
    fields.Fail("stop_token_ids", "holds more than " + std::to_string(kMaxStopTokens) + " ids");
  }
  if (fields.Bool("no_stop_trim").value_or(false)) spec.stop_text = text::StopText::kKept;
  if (fields.Bool("include_stop_str_in_output").value_or(false)) {
    spec.stop_text = text::StopText::kKept;
  }
  if (!fields.Bool("skip_special_tokens").value_or(true)) {
    spec.skip_special = text::SkipSpecial::kNo;
  }
  fields.Ignore("spaces_between_special_tokens");
}

}  // namespace

void ReadSamplingFields(FieldReader& fields, const ServedModel& model, GenerationSpec& spec) {
  const SamplingDefaults& defaults = model.defaults;
  const auto number = [&](const char* name, double low, double high,
                          const std::optional<double>& model_default, double fallback) {
    return static_cast<float>(
        fields.Number(name, low, high).value_or(model_default.value_or(fallback)));
  };
  SamplingParams& sampling = spec.sampling;
  sampling.temperature = number("temperature", 0.0, kMaxTemperature, defaults.temperature, 1.0);
  // 0 keeps nothing but the best token: the smallest share that is not empty says the same.
  sampling.top_p =
      std::max(number("top_p", 0.0, 1.0, defaults.top_p, 1.0), std::numeric_limits<float>::min());
  sampling.min_p = number("min_p", 0.0, 1.0, defaults.min_p, 0.0);
  sampling.frequency_penalty = number("frequency_penalty", -2.0, 2.0, std::nullopt, 0.0);
  sampling.presence_penalty = number("presence_penalty", -2.0, 2.0, std::nullopt, 0.0);
  sampling.repetition_penalty =
      number("repetition_penalty", kMinRepetitionPenalty, 2.0, defaults.repetition_penalty, 1.0);
  // −1 and 0 switch it off; more than the vocabulary is the whole vocabulary.
  const int64_t top_k = fields.Int("top_k", -1, std::numeric_limits<int32_t>::max())
                            .value_or(defaults.top_k.value_or(0));
  sampling.top_k = static_cast<int32_t>(std::clamp<int64_t>(top_k, 0, model.vocab_size));
  sampling.ignore_eos = fields.Bool("ignore_eos").value_or(false);
  ReadLogitBias(fields, model, spec);
  ReadStops(fields, model, spec);
  spec.n = static_cast<int32_t>(fields.Int("n", 1, GenerationSpec::kMaxChoices).value_or(1));
  spec.stream_interval =
      static_cast<int32_t>(fields.Int("stream_interval", 1, std::numeric_limits<int32_t>::max())
                               .value_or(model.stream.interval));
}

std::vector<std::string> ReadRequestIds(FieldReader& fields, size_t max_count) {
  std::vector<std::string> ids = fields.Strings("rid", max_count);
  for (const std::string& id : ids) {
    if (id.empty() || id.size() > kMaxRequestId) {
      fields.Fail("rid", fmt::format("names have 1 to {} bytes", kMaxRequestId));
      return {};
    }
  }
  return ids;
}

}  // namespace hayate::api
