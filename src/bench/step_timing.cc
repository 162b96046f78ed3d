#include "bench/step_timing.h"

#include <algorithm>
#include <optional>

#include "base/align.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/json_writer.h"
#include "base/rng.h"
#include "bench/sample_stats.h"

namespace hayate::bench {
namespace {

// Writes plans whose slots own fixed, disjoint pages.
class PlanWriter {
 public:
  PlanWriter(const StepBenchTarget& target, int32_t num_slots, int32_t slot_tokens)
      : target_(target),
        num_slots_(num_slots),
        slot_pages_(CeilDiv(slot_tokens, target.layout->page_tokens)) {}

  void Begin() {
    plan_.Clear();
    plan_.step = next_step_++;
  }
  // The slot starts over with all its pages.
  void StartSlot(int32_t slot) {
    SamplingParams greedy;
    greedy.temperature = 0.0f;
    greedy.max_new_tokens = 1 << 20;
    plan_.starts.push_back({.slot = {slot}, .sampling = greedy});
    for (size_t group = 0; group < target_.layout->groups.size(); ++group) {
      const int32_t own = OwnPages(group);
      for (int32_t i = 0; i < slot_pages_; ++i) {
        plan_.page_updates.push_back(
            {{slot}, static_cast<int32_t>(group), i, {1 + slot * own + i % own}});
      }
    }
  }
  void CopyPages(int32_t from, int32_t to) {
    for (size_t group = 0; group < target_.layout->groups.size(); ++group) {
      const int32_t own = OwnPages(group);
      for (int32_t i = 0; i < own; ++i) {
        plan_.copies.push_back(
            {static_cast<int32_t>(group), {1 + from * own + i}, {1 + to * own + i}});
      }
    }
  }
  void AddPrompt(int32_t slot, int32_t begin, int32_t end, Rng& rng) {
    StepRow row{.slot = {slot}, .begin = begin, .end = end};
    row.first_token = static_cast<int32_t>(plan_.tokens.size());
    row.samples = true;
    for (int32_t i = begin; i < end; ++i) {
      plan_.tokens.push_back(
          static_cast<TokenId>(rng.Below(static_cast<uint32_t>(target_.vocab_size))));
    }
    plan_.rows.push_back(row);
    plan_.num_tokens += row.num_tokens();
  }
  void AddDecode(int32_t slot, int32_t position) {
    plan_.rows.push_back({.slot = {slot},
                          .begin = position,
                          .end = position + 1,
                          .first_token = kLateToken,
                          .samples = true});
    ++plan_.num_tokens;
  }
  const StepPlan& plan() const { return plan_; }

 private:
  // A window's pool is smaller: the slot's pages come round again once they are out of sight.
  int32_t OwnPages(size_t group) const {
    return std::min(slot_pages_, (target_.pool_pages[group] - 1) / num_slots_);
  }

  const StepBenchTarget& target_;
  int32_t num_slots_;
  int32_t slot_pages_;
  uint64_t next_step_ = 0;
  StepPlan plan_;
};

// A step that failed has no time worth reporting.
void Take(const StepBenchTarget& target) {
  const StepResult& result = target.executor->WaitOldest();
  CHECK(result.status.ok()) << result.status.ToString();
}

void RunOne(const StepBenchTarget& target, PlanWriter& writer) {
  target.executor->Submit(writer.plan());
  Take(target);
}

// Seconds of one prompt.
double TimePrefill(const StepBenchTarget& target, PlanWriter& writer,
                   const StepBenchOptions& options, Rng& rng) {
  writer.Begin();
  writer.StartSlot(0);
  writer.AddPrompt(0, 0, options.prefill, rng);
  const SteadyClock clock;
  const int64_t begin_ns = clock.NowNs();
  RunOne(target, writer);
  return static_cast<double>(clock.NowNs() - begin_ns) * 1e-9;
}

// Slot 0 computes a prompt; the others take copies of its pages and go on from its last token.
void FillContexts(const StepBenchTarget& target, PlanWriter& writer,
                  const StepBenchOptions& options, Rng& rng) {
  for (int32_t begin = 0; begin < options.context; begin += target.max_step_tokens) {
    writer.Begin();
    if (begin == 0) writer.StartSlot(0);
    writer.AddPrompt(0, begin, std::min(options.context, begin + target.max_step_tokens), rng);
    RunOne(target, writer);
  }
  for (int32_t slot = 1; slot < options.batch; ++slot) {
    writer.Begin();
    writer.StartSlot(slot);
    writer.CopyPages(0, slot);
    writer.AddPrompt(slot, options.context - 1, options.context, rng);
    RunOne(target, writer);
  }
}

// The chunks of prompts beside decode steps: a sequence in the slot behind those that decode.
class PromptStream {
 public:
  explicit PromptStream(const StepBenchOptions& options)
      : slot_(options.batch),
        chunk_(options.chunk),
        prompt_(std::max(options.chunk, AlignDown(options.context, options.chunk))) {}

  void AddChunk(PlanWriter& writer, Rng& rng) {
    if (next_ == 0) writer.StartSlot(slot_);
    writer.AddPrompt(slot_, next_, next_ + chunk_, rng);
    next_ = (next_ + chunk_) % prompt_;
  }

 private:
  const int32_t slot_, chunk_, prompt_;
  int32_t next_ = 0;
};

// Seconds of `steps` decode or mixed steps, two in flight as the engine keeps them.
double TimeDecode(const StepBenchTarget& target, PlanWriter& writer,
                  const StepBenchOptions& options, Rng& rng) {
  std::optional<PromptStream> prompts;
  if (options.chunk > 0) prompts.emplace(options);
  const SteadyClock clock;
  const int64_t begin_ns = clock.NowNs();
  int in_flight = 0;
  for (int32_t step = 0; step < options.steps; ++step) {
    writer.Begin();
    for (int32_t slot = 0; slot < options.batch; ++slot) {
      writer.AddDecode(slot, options.context + step);
    }
    if (prompts) prompts->AddChunk(writer, rng);
    target.executor->Submit(writer.plan());
    if (++in_flight == StepExecutor::kMaxInFlight) {
      Take(target);
      --in_flight;
    }
  }
  for (; in_flight > 0; --in_flight) Take(target);
  return static_cast<double>(clock.NowNs() - begin_ns) * 1e-9;
}

int32_t SlotTokens(const StepBenchOptions& options) {
  if (options.prefill > 0) return options.prefill + 1;
  return std::max(options.context + options.steps, options.chunk) + 1;
}

}  // namespace

double StepBenchResult::median_tokens_per_s() const { return Summarize(tokens_per_s).median; }
double StepBenchResult::median_step_ms() const { return Summarize(step_ms).median; }

int32_t StepBenchSlots(const StepBenchOptions& options) {
  if (options.prefill > 0) return 1;
  return options.batch + (options.chunk > 0 ? 1 : 0);
}

int64_t StepBenchTokens(const StepBenchOptions& options, int32_t page_tokens) {
  return int64_t{StepBenchSlots(options)} * AlignUp(SlotTokens(options), page_tokens);
}

StepBenchResult RunStepBench(const StepBenchTarget& target, const StepBenchOptions& options) {
  const bool prefill = options.prefill > 0;
  Rng rng(options.seed);
  PlanWriter writer(target, StepBenchSlots(options), SlotTokens(options));
  StepBenchResult result;
  // Repeat −1 warms caches and pages and is not counted.
  for (int32_t repeat = -1; repeat < options.repeats; ++repeat) {
    double seconds = 0;
    int32_t tokens = 0;
    if (prefill) {
      seconds = TimePrefill(target, writer, options, rng);
      tokens = options.prefill;
    } else {
      FillContexts(target, writer, options, rng);
      seconds = TimeDecode(target, writer, options, rng);
      tokens = options.batch * options.steps;
    }
    if (repeat < 0) continue;
    result.tokens_per_s.push_back(tokens / seconds);
    result.step_ms.push_back(seconds * 1e3 / (prefill ? 1 : options.steps));
  }
  return result;
}

std::string ToJson(const StepBenchOptions& options, const StepBenchResult& result,
                   const StepBenchSubject& subject) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("model", subject.model);
  json.Field("device", subject.device);
  json.Field("ranks", subject.num_ranks);
  json.Field("weight_bytes", subject.weight_bytes);
  json.Field("cache_bytes_per_token", subject.cache_bytes_per_token);
  if (options.prefill > 0) {
    json.Field("prefill", options.prefill);
  } else {
    json.Field("batch", options.batch);
    json.Field("context", options.context);
    json.Field("steps", options.steps);
    if (options.chunk > 0) json.Field("chunk", options.chunk);
  }
  json.Field("tokens_per_s", result.median_tokens_per_s());
  json.Field("step_ms", result.median_step_ms());
  json.Key("tokens_per_s_rounds");
  json.BeginArray();
  for (const double value : result.tokens_per_s) json.Double(value);
  json.EndArray();
  json.EndObject();
  return out;
}

}  // namespace hayate::bench
