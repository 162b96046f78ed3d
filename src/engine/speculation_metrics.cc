#include "engine/speculation_metrics.h"

namespace hayate::engine {
namespace {

constexpr double kAverageStep = 1.0 / 64;

std::vector<double> AcceptedBounds() { return {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32}; }

}  // namespace

SpeculationMetrics::SpeculationMetrics(obs::Registry& r, const std::string& model)
    : verify_calls(r.AddCounter({"sglang:spec_verify_calls_total",
                                 "Rows that verified drafts",
                                 {{"model_name", model}}})),
      drafted_tokens(r.AddCounter({"hayate:spec_drafted_tokens_total",
                                   "Draft tokens that were verified",
                                   {{"model_name", model}}})),
      accepted_tokens(r.AddCounter({"hayate:spec_accepted_tokens_total",
                                    "Draft tokens that stood",
                                    {{"model_name", model}}})),
      accept_length(r.AddGauge({"sglang:spec_accept_length",
                                "Tokens that a row with drafts brings",
                                {{"model_name", model}}})),
      accept_rate(r.AddGauge({"sglang:spec_accept_rate",
                              "Share of the verified drafts that stood",
                              {{"model_name", model}}})),
      chosen_drafts(r.AddGauge({"sglang:spec_num_draft_tokens",
                                "Drafts chosen for the last step that could verify some",
                                {{"model_name", model}}})),
      accepted_per_verify(r.AddHistogram({"hayate:spec_accepted_per_verify",
                                          "Drafts that stood, of a row that verified some",
                                          {{"model_name", model}}},
                                         AcceptedBounds())) {}

void SpeculationMetrics::ObserveVerify(int32_t num_drafts, int32_t num_accepted) {
  const auto accepted = static_cast<double>(num_accepted);
  const double rate = accepted / num_drafts;
  const bool first = verify_calls.value() == 0;
  verify_calls.Increment();
  drafted_tokens.Add(static_cast<uint64_t>(num_drafts));
  accepted_tokens.Add(static_cast<uint64_t>(num_accepted));
  const auto move = [&](obs::Gauge& gauge, double value) {
    gauge.Set(first ? value : gauge.value() + kAverageStep * (value - gauge.value()));
  };
  move(accept_length, accepted + 1);
  move(accept_rate, rate);
  accepted_per_verify.Observe(accepted);
}

}  // namespace hayate::engine
