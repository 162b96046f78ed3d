#include "obs/step_trace.h"

#include "base/json_writer.h"

namespace hayate::obs {
namespace {

constexpr int kProcess = 1;
constexpr int kEngine = 1;
constexpr int kDevice = 2;
constexpr double kUsPerNs = 1e-3;

class TraceWriter {
 public:
  explicit TraceWriter(std::string& out, int64_t origin_ns) : json_(out), origin_ns_(origin_ns) {}

  void Begin() {
    json_.BeginObject();
    json_.Field("displayTimeUnit", "ms");
    json_.Key("traceEvents");
    json_.BeginArray();
    Name("process_name", kEngine, "hayate");
    Name("thread_name", kEngine, "engine");
    Name("thread_name", kDevice, "device");
  }
  void End() {
    json_.EndArray();
    json_.EndObject();
  }

  void Span(int thread, std::string_view name, int64_t begin_ns, int64_t length_ns,
            const StepRecord& step) {
    if (begin_ns == 0) return;
    Event("X", thread, name);
    json_.Field("ts", Us(begin_ns));
    json_.Field("dur", static_cast<double>(length_ns) * kUsPerNs);
    json_.Key("args");
    json_.BeginObject();
    json_.Field("step", step.step);
    json_.Field("rows", step.num_rows);
    json_.Field("prefill_tokens", step.num_prefill_tokens);
    json_.Field("decode_tokens", step.num_decode_tokens);
    json_.EndObject();
    json_.EndObject();
  }
  void Counts(const StepRecord& step) {
    Event("C", kEngine, "requests");
    json_.Field("ts", Us(step.start_ns));
    json_.Key("args");
    json_.BeginObject();
    json_.Field("running", step.num_running);
    json_.Field("waiting", step.num_waiting);
    json_.EndObject();
    json_.EndObject();
    Event("C", kEngine, "pages");
    json_.Field("ts", Us(step.start_ns));
    json_.Key("args");
    json_.BeginObject();
    json_.Field("used", step.num_pages_used);
    json_.Field("cached", step.num_pages_cached);
    json_.EndObject();
    json_.EndObject();
  }

 private:
  void Event(std::string_view phase, int thread, std::string_view name) {
    json_.BeginObject();
    json_.Field("ph", phase);
    json_.Field("pid", kProcess);
    json_.Field("tid", thread);
    json_.Field("name", name);
  }
  void Name(std::string_view kind, int thread, std::string_view name) {
    Event("M", thread, kind);
    json_.Key("args");
    json_.BeginObject();
    json_.Field("name", name);
    json_.EndObject();
    json_.EndObject();
  }
  double Us(int64_t at_ns) const { return static_cast<double>(at_ns - origin_ns_) * kUsPerNs; }

  JsonWriter json_;
  const int64_t origin_ns_;
};

}  // namespace

std::string StepTraceJson(std::span<const StepRecord> steps) {
  std::string out;
  TraceWriter trace(out, steps.empty() ? 0 : steps.front().start_ns);
  trace.Begin();
  for (const StepRecord& step : steps) {
    trace.Span(kEngine, "plan", step.start_ns, step.plan_ns, step);
    trace.Span(kEngine, "wait", step.wait_start_ns, step.wait_ns, step);
    trace.Span(kEngine, "commit", step.wait_start_ns + step.wait_ns, step.commit_ns, step);
    trace.Span(kDevice, "forward", step.device_start_ns, step.forward_ns, step);
    trace.Counts(step);
  }
  trace.End();
  return out;
}

}  // namespace hayate::obs
