#include "bench/workload.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/check.h"
#include "base/rng.h"

namespace hayate::bench {
namespace {

// Words that common tokenizers keep whole together with the blank before them.
constexpr std::string_view kWords[] = {
    "time",     "year",    "people",   "way",    "day",        "man",    "thing",   "woman",
    "life",     "child",   "world",    "school", "state",      "family", "student", "group",
    "country",  "problem", "hand",     "part",   "place",      "case",   "week",    "company",
    "system",   "program", "question", "work",   "government", "number", "night",   "point",
    "home",     "water",   "room",     "mother", "area",       "money",  "story",   "fact",
    "month",    "lot",     "right",    "study",  "book",       "eye",    "job",     "word",
    "business", "issue",   "side",     "kind",   "head",       "house",  "service", "friend",
    "father",   "power",   "hour",     "game",   "line",       "end",    "member",  "law"};

// Appends `count` random tokens or words to the request's prompt.
void AppendPrompt(PlannedRequest& request, int32_t count, const RandomWorkload& workload,
                  Rng& rng) {
  for (int32_t i = 0; i < count; ++i) {
    if (workload.prompts == RandomWorkload::Prompts::kIds) {
      request.prompt_ids.push_back(
          static_cast<int32_t>(rng.Below(static_cast<uint32_t>(workload.vocab_size))));
    } else {
      if (!request.prompt_text.empty()) request.prompt_text += ' ';
      request.prompt_text += kWords[rng.Below(std::size(kWords))];
    }
  }
}

int32_t DrawLength(int32_t nominal, double range_ratio, Rng& rng) {
  const int32_t shortest = std::max(1, static_cast<int32_t>(nominal * range_ratio));
  return rng.Between(std::min(shortest, nominal), nominal);
}

}  // namespace

std::vector<PlannedRequest> MakeRandomWorkload(const RandomWorkload& workload) {
  CHECK(workload.prompts == RandomWorkload::Prompts::kText || workload.vocab_size > 0);
  CHECK(workload.input_tokens > 0 && workload.output_tokens > 0 && workload.num_prefix_groups > 0);
  Rng rng(workload.seed);
  std::vector<PlannedRequest> prefixes(static_cast<size_t>(workload.num_prefix_groups));
  for (PlannedRequest& prefix : prefixes) {
    AppendPrompt(prefix, workload.shared_prefix_tokens, workload, rng);
  }
  std::vector<PlannedRequest> requests;
  for (int32_t i = 0; i < workload.num_prompts; ++i) {
    PlannedRequest request = prefixes[static_cast<size_t>(i) % prefixes.size()];
    AppendPrompt(request, DrawLength(workload.input_tokens, workload.range_ratio, rng), workload,
                 rng);
    request.output_tokens = DrawLength(workload.output_tokens, workload.range_ratio, rng);
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<double> ArrivalTimes(int32_t num_requests, double request_rate, uint64_t seed) {
  std::vector<double> times(static_cast<size_t>(num_requests), 0.0);
  if (std::isinf(request_rate)) return times;
  CHECK_GT(request_rate, 0.0);
  Rng rng(seed);
  for (size_t i = 1; i < times.size(); ++i) {
    // 1 − u is in (0, 1], so the logarithm is finite.
    times[i] = times[i - 1] - std::log(1.0 - double{rng.NextFloat()}) / request_rate;
  }
  return times;
}

}  // namespace hayate::bench
