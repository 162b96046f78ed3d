#pragma once
// Times operators one by one, as one rank runs them, and says how much of the roofline of the core
// or the GPU each reaches. A GPU's calls are recorded in a graph and replayed, as those of a step.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/roofline.h"
#include "tensor/device.h"

namespace hayate::bench {

enum class OpArithmetic { kFp32, kBf16, kInt8, kFp8 };

// One operator at one shape, with its operands.
struct OpCase {
  std::function<void()> run;  // one call; owns the operands
  // Bytes that each call reads from memory: weights or cached keys and values, which rotate through
  // more copies than the caches hold. Activations stay in the caches, as they do in a step.
  double cold_bytes = 0.0;
  double flop = 0.0;
  OpArithmetic arithmetic = OpArithmetic::kFp32;
  Stream stream;  // where a GPU's run() queues its launches; no device: it computes in the call
};

struct OpSpec {
  std::string name;  // "matmul/Q4_1/gate_up[3072,576]/T1"
  std::function<OpCase()> make;
};

// Every case of the CPU's operators, in the order of a report.
std::vector<OpSpec> AllOpSpecs();
// Those whose name contains `filter`, or all when it is empty.
std::vector<OpSpec> FilterOpSpecs(std::vector<OpSpec> specs, std::string_view filter);

struct OpResult {
  std::string name;
  double us = 0.0;  // of a call, median of the rounds
  double gb_per_s = 0.0;
  double gflop_per_s = 0.0;
  // Of the time that the roofline allows, in the time that was taken: 1 is as fast as the machine
  // can be. Absent where the case reads nothing from memory: its bound is the caches.
  std::optional<double> roofline_share;
  enum class Bound { kMemory, kCompute } bound = Bound::kMemory;
};

struct OpTiming {
  int rounds = 7;
  double round_s = 0.02;  // at least, and at least one call
};

OpResult TimeOp(const OpSpec& spec, const Roofline& roofline, const OpTiming& timing);

// The least seconds that the roofline allows for the case, and what bounds it.
struct RooflineTime {
  double seconds = 0.0;
  OpResult::Bound bound = OpResult::Bound::kMemory;
};
RooflineTime BestTime(const OpCase& op, const Roofline& roofline);

// `device`: "one core", or the name of a GPU.
std::string RenderOpHeader(const Roofline& roofline, std::string_view device);
std::string RenderOpLine(const OpResult& result);
std::string ToJson(const Roofline& roofline, const std::string& device,
                   std::span<const OpResult> results);

}  // namespace hayate::bench
