#include "bench/op_timing.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "base/json_writer.h"
#include "bench/op_cases.h"
#include "bench/sample_stats.h"

namespace hayate::bench {
namespace {

double Peak(OpArithmetic arithmetic, const Roofline& roofline) {
  switch (arithmetic) {
    case OpArithmetic::kFp32:
      return roofline.fp32_gflop_per_s;
    case OpArithmetic::kBf16:
      return roofline.bf16_gflop_per_s;
    case OpArithmetic::kInt8:
      return roofline.int8_gop_per_s;
    case OpArithmetic::kFp8:
      return roofline.fp8_gflop_per_s;
  }
  return 0.0;
}

// Of a call that computes on this thread, for each round.
std::vector<double> CallSeconds(const OpCase& op, const OpTiming& timing) {
  const SteadyClock clock;
  op.run();
  std::vector<double> seconds;
  for (int round = 0; round < timing.rounds; ++round) {
    int64_t calls = 0;
    double elapsed_s = 0.0;
    const int64_t begin_ns = clock.NowNs();
    // The clock is read after 1, 2, 4, … calls, so that it costs short operators nothing.
    for (int64_t next = 1; elapsed_s < timing.round_s; next *= 2) {
      for (; calls < next; ++calls) op.run();
      elapsed_s = static_cast<double>(clock.NowNs() - begin_ns) * 1e-9;
    }
    seconds.push_back(elapsed_s / static_cast<double>(calls));
  }
  return seconds;
}

// Of a call whose launches are replayed from a graph, for each round.
std::vector<double> LaunchSeconds(const OpCase& op, const OpTiming& timing) {
  const SteadyClock clock;
  Device& device = *op.stream.device;
  const Event done = device.NewEvent();
  const auto seconds_of = [&](const std::function<void()>& queue) {
    const int64_t begin_ns = clock.NowNs();
    queue();
    device.Record(done, op.stream);
    device.Synchronize(done);
    return static_cast<double>(clock.NowNs() - begin_ns) * 1e-9;
  };
  op.run();  // what is set up at its first use
  // Short calls in numbers, so that what lies between two graphs hardly counts.
  constexpr double kGraphSeconds = 0.004;
  const int calls = static_cast<int>(std::clamp(kGraphSeconds / seconds_of(op.run), 4.0, 64.0));
  device.BeginCapture(op.stream);
  for (int i = 0; i < calls; ++i) op.run();
  const Graph graph = device.EndCapture(op.stream);
  const auto replay = [&] { device.Launch(graph, op.stream); };
  seconds_of(replay);
  const int replays = 1 + static_cast<int>(std::min(timing.round_s / seconds_of(replay), 1e4));
  std::vector<double> seconds;
  for (int round = 0; round < timing.rounds; ++round) {
    const double elapsed_s = seconds_of([&] {
      for (int i = 0; i < replays; ++i) replay();
    });
    seconds.push_back(elapsed_s / (double{1} * calls * replays));
  }
  CHECK(device.status().ok()) << device.status().message();
  return seconds;
}

std::string_view BoundName(OpResult::Bound bound) {
  return bound == OpResult::Bound::kMemory ? "memory" : "compute";
}

}  // namespace

std::vector<OpSpec> AllOpSpecs() {
  std::vector<OpSpec> specs;
  AddMatmulSpecs(specs);
  AddAttentionSpecs(specs);
  AddRowwiseSpecs(specs);
  return specs;
}

std::vector<OpSpec> FilterOpSpecs(std::vector<OpSpec> specs, std::string_view filter) {
  std::erase_if(specs,
                [&](const OpSpec& spec) { return spec.name.find(filter) == std::string::npos; });
  return specs;
}

RooflineTime BestTime(const OpCase& op, const Roofline& roofline) {
  const double peak = Peak(op.arithmetic, roofline);
  const double compute_s = peak > 0.0 ? op.flop * 1e-9 / peak : 0.0;
  const double memory_s =
      roofline.read_gb_per_s > 0.0 ? op.cold_bytes * 1e-9 / roofline.read_gb_per_s : 0.0;
  if (compute_s > memory_s) return {compute_s, OpResult::Bound::kCompute};
  return {memory_s, OpResult::Bound::kMemory};
}

OpResult TimeOp(const OpSpec& spec, const Roofline& roofline, const OpTiming& timing) {
  const OpCase op = spec.make();
  std::vector<double> seconds =
      op.stream.device == nullptr ? CallSeconds(op, timing) : LaunchSeconds(op, timing);
  const double median_s = Summarize(std::move(seconds)).median;
  OpResult result;
  result.name = spec.name;
  result.us = median_s * 1e6;
  result.gb_per_s = op.cold_bytes * 1e-9 / median_s;
  result.gflop_per_s = op.flop * 1e-9 / median_s;
  const RooflineTime best = BestTime(op, roofline);
  result.bound = best.bound;
  if (op.cold_bytes > 0.0 && best.seconds > 0.0) result.roofline_share = best.seconds / median_s;
  return result;
}

std::string RenderOpHeader(const Roofline& roofline, std::string_view device) {
  std::string out = fmt::format("{}: reads {:.1f} GB/s, fp32 {:.0f} GFLOP/s", device,
                                roofline.read_gb_per_s, roofline.fp32_gflop_per_s);
  if (roofline.bf16_gflop_per_s > 0.0) {
    out += fmt::format(", bf16 {:.0f} GFLOP/s", roofline.bf16_gflop_per_s);
  }
  if (roofline.int8_gop_per_s > 0.0) {
    out += fmt::format(", int8 {:.0f} GOP/s", roofline.int8_gop_per_s);
  }
  if (roofline.fp8_gflop_per_s > 0.0) {
    out += fmt::format(", fp8 {:.0f} GFLOP/s", roofline.fp8_gflop_per_s);
  }
  return out + fmt::format("\n{:<56} {:>11} {:>8} {:>9} {:>9} {}\n", "operator", "us", "GB/s",
                           "GFLOP/s", "roofline", "bound");
}

std::string RenderOpLine(const OpResult& result) {
  const std::string share =
      result.roofline_share ? fmt::format("{:.0f} %", *result.roofline_share * 100.0) : "-";
  return fmt::format("{:<56} {:>11.2f} {:>8.2f} {:>9.1f} {:>9} {}\n", result.name, result.us,
                     result.gb_per_s, result.gflop_per_s, share,
                     result.roofline_share ? BoundName(result.bound) : "cache");
}

std::string ToJson(const Roofline& roofline, const std::string& device,
                   std::span<const OpResult> results) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("device", device);
  json.Field("read_gb_per_s", roofline.read_gb_per_s);
  json.Field("fp32_gflop_per_s", roofline.fp32_gflop_per_s);
  json.Field("bf16_gflop_per_s", roofline.bf16_gflop_per_s);
  json.Field("int8_gop_per_s", roofline.int8_gop_per_s);
  json.Field("fp8_gflop_per_s", roofline.fp8_gflop_per_s);
  json.Key("operators");
  json.BeginArray();
  for (const OpResult& result : results) {
    json.BeginObject();
    json.Field("name", result.name);
    json.Field("us", result.us);
    json.Field("gb_per_s", result.gb_per_s);
    json.Field("gflop_per_s", result.gflop_per_s);
    json.Key("roofline_share");
    result.roofline_share ? json.Double(*result.roofline_share) : json.Null();
    json.Field("bound", result.roofline_share ? BoundName(result.bound) : "cache");
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return out;
}

}  // namespace hayate::bench
