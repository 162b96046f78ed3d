#include "bench/load_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/json_writer.h"

namespace hayate::bench {
namespace {

// Rates of an empty or unmeasurably short run are 0, never NaN.
double Rate(double amount, double seconds) { return seconds > 0.0 ? amount / seconds : 0.0; }

std::string RateName(double request_rate) {
  return std::isinf(request_rate) ? "inf" : fmt::format("{:g}", request_rate);
}

void WriteStats(JsonWriter& json, std::string_view name, const SampleStats& stats) {
  json.Field(fmt::format("mean_{}_ms", name), stats.mean);
  json.Field(fmt::format("median_{}_ms", name), stats.median);
  json.Field(fmt::format("std_{}_ms", name), stats.std);
  json.Field(fmt::format("p90_{}_ms", name), stats.p90);
  json.Field(fmt::format("p99_{}_ms", name), stats.p99);
  json.Field(fmt::format("max_{}_ms", name), stats.max);
}

template <typename WriteOne>
void WriteArray(JsonWriter& json, std::string_view name, const LoadResult& result,
                WriteOne write_one) {
  json.Key(name);
  json.BeginArray();
  for (const RequestRecord& record : result.records) write_one(record);
  json.EndArray();
}

void WriteRecords(JsonWriter& json, const LoadResult& result) {
  WriteArray(json, "input_lens", result, [&](const auto& r) { json.Int(r.input_tokens); });
  WriteArray(json, "output_lens", result, [&](const auto& r) { json.Int(r.output_tokens); });
  WriteArray(json, "ttfts", result, [&](const auto& r) { json.Double(r.ttft_s); });
  WriteArray(json, "e2els", result, [&](const auto& r) { json.Double(r.e2e_s); });
  WriteArray(json, "itls", result, [&](const auto& r) {
    json.BeginArray();
    for (const double itl : r.itl_s) json.Double(itl);
    json.EndArray();
  });
  WriteArray(json, "errors", result, [&](const auto& r) { json.String(r.error); });
}

}  // namespace

LoadSummary SummarizeLoad(const LoadResult& result) {
  LoadSummary summary;
  summary.num_requests = static_cast<int32_t>(result.records.size());
  summary.duration_s = result.duration_s;
  summary.max_in_flight = result.max_in_flight;
  std::vector<double> ttft, tpot, itl, e2el;
  std::map<std::string, int32_t> errors;
  double busy_s = 0.0;
  for (const RequestRecord& record : result.records) {
    busy_s += record.e2e_s;
    if (!record.error.empty()) {
      ++errors[record.error];
      continue;
    }
    ++summary.completed;
    summary.num_wrong_length += record.output_tokens != record.wanted_output_tokens;
    summary.total_input_tokens += record.input_tokens;
    summary.total_output_tokens += record.output_tokens;
    summary.total_cached_tokens += record.cached_tokens;
    ttft.push_back(record.ttft_s * 1e3);
    e2el.push_back(record.e2e_s * 1e3);
    if (record.output_tokens > 1) {
      tpot.push_back((record.e2e_s - record.ttft_s) * 1e3 / (record.output_tokens - 1));
    }
    for (const double gap : record.itl_s) itl.push_back(gap * 1e3);
  }
  const auto input = static_cast<double>(summary.total_input_tokens);
  const auto output = static_cast<double>(summary.total_output_tokens);
  summary.request_throughput = Rate(summary.completed, result.duration_s);
  summary.input_throughput = Rate(input, result.duration_s);
  summary.output_throughput = Rate(output, result.duration_s);
  summary.total_token_throughput = Rate(input + output, result.duration_s);
  summary.concurrency = Rate(busy_s, result.duration_s);
  summary.ttft_ms = Summarize(std::move(ttft));
  summary.tpot_ms = Summarize(std::move(tpot));
  summary.itl_ms = Summarize(std::move(itl));
  summary.e2el_ms = Summarize(std::move(e2el));
  summary.errors.assign(errors.begin(), errors.end());
  std::stable_sort(summary.errors.begin(), summary.errors.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return summary;
}

std::string RenderTable(const LoadSettings& settings, const LoadSummary& summary) {
  std::string out;
  const auto line = [&out](std::string_view name, const std::string& value) {
    fmt::format_to(std::back_inserter(out), "{:<34} {}\n", name, value);
  };
  line("server", fmt::format("{} ({}, {})", settings.base_url, settings.backend, settings.model));
  line("request rate, 1/s", RateName(settings.request_rate));
  line("max concurrency",
       settings.max_concurrency > 0 ? std::to_string(settings.max_concurrency) : "none");
  line("requests completed", fmt::format("{} of {}", summary.completed, summary.num_requests));
  if (summary.num_wrong_length > 0) {
    line("  with an unasked length", std::to_string(summary.num_wrong_length));
  }
  line("duration, s", fmt::format("{:.2f}", summary.duration_s));
  line("input tokens", fmt::format("{} ({} from the cache)", summary.total_input_tokens,
                                   summary.total_cached_tokens));
  line("output tokens", std::to_string(summary.total_output_tokens));
  line("request throughput, 1/s", fmt::format("{:.2f}", summary.request_throughput));
  line("input throughput, tokens/s", fmt::format("{:.1f}", summary.input_throughput));
  line("output throughput, tokens/s", fmt::format("{:.1f}", summary.output_throughput));
  line("total throughput, tokens/s", fmt::format("{:.1f}", summary.total_token_throughput));
  line("concurrency, mean (peak)",
       fmt::format("{:.1f} ({})", summary.concurrency, summary.max_in_flight));
  fmt::format_to(std::back_inserter(out), "\n{:<34} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "latency, ms",
                 "mean", "median", "p90", "p99", "max");
  const auto row = [&out](std::string_view name, const SampleStats& stats) {
    fmt::format_to(std::back_inserter(out), "{:<34} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f}\n",
                   name, stats.mean, stats.median, stats.p90, stats.p99, stats.max);
  };
  row("time to first token (TTFT)", summary.ttft_ms);
  row("time per later token (TPOT)", summary.tpot_ms);
  row("between events (ITL)", summary.itl_ms);
  row("end to end (E2E)", summary.e2el_ms);
  constexpr size_t kMaxShownErrors = 5;
  for (size_t i = 0; i < std::min(summary.errors.size(), kMaxShownErrors); ++i) {
    if (i == 0) out += "\nfailed requests\n";
    fmt::format_to(std::back_inserter(out), "{:>6} x {}\n", summary.errors[i].second,
                   summary.errors[i].first);
  }
  return out;
}

std::string ToJson(const LoadSettings& settings, const LoadSummary& summary,
                   const LoadResult& result, JsonDetail detail) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("date", settings.date);
  json.Field("backend", settings.backend);
  json.Field("base_url", settings.base_url);
  json.Field("model_id", settings.model);
  json.Field("tokenizer_id", settings.model);
  json.Field("dataset_name", settings.dataset);
  json.Field("num_prompts", summary.num_requests);
  json.Field("random_input_len", settings.random_input_len);
  json.Field("random_output_len", settings.random_output_len);
  json.Field("random_range_ratio", settings.random_range_ratio);
  json.Field("shared_prefix_len", settings.shared_prefix_len);
  json.Field("seed", settings.seed);
  json.Key("request_rate");
  if (std::isinf(settings.request_rate)) {
    json.String("inf");
  } else {
    json.Double(settings.request_rate);
  }
  json.Field("burstiness", 1.0);  // of a Poisson process
  json.Key("max_concurrency");
  settings.max_concurrency > 0 ? json.Int(settings.max_concurrency) : json.Null();
  json.Field("duration", summary.duration_s);
  json.Field("completed", summary.completed);
  json.Field("num_wrong_length", summary.num_wrong_length);
  json.Field("total_input_tokens", summary.total_input_tokens);
  json.Field("total_output_tokens", summary.total_output_tokens);
  json.Field("total_cached_tokens", summary.total_cached_tokens);
  json.Field("request_throughput", summary.request_throughput);
  json.Field("input_throughput", summary.input_throughput);
  json.Field("output_throughput", summary.output_throughput);
  json.Field("total_token_throughput", summary.total_token_throughput);
  json.Field("concurrency", summary.concurrency);
  json.Field("max_concurrent_requests", summary.max_in_flight);
  WriteStats(json, "ttft", summary.ttft_ms);
  WriteStats(json, "tpot", summary.tpot_ms);
  WriteStats(json, "itl", summary.itl_ms);
  WriteStats(json, "e2el", summary.e2el_ms);
  if (detail == JsonDetail::kPerRequest) WriteRecords(json, result);
  json.EndObject();
  return out;
}

}  // namespace hayate::bench
