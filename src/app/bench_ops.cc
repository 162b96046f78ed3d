#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "app/bench_commands.h"
#include "app/machine.h"
#include "base/error.h"
#include "bench/gpu_cases.h"
#include "bench/op_timing.h"

namespace hayate::app {
namespace {

struct BenchOpsOptions {
  std::string filter;
  std::string device = "auto";
  bench::OpTiming timing;
  bool list = false;
  bool json = false;
};

Status BenchOps(const BenchOpsOptions& options) {
  const bool gpu = options.device == "cuda" || (options.device == "auto" && CountCudaDevices() > 0);
  std::string device = CpuName() + " (" + ToString(DetectCpuFeatures()) + ")";
  if (gpu) {
    constexpr double kHardlyAny = 0.01;  // its name is all that is wanted
    ASSIGN_OR_RETURN(const auto opened, MakeCudaDevice({.memory_fraction = kHardlyAny}));
    device = opened->name();
  }
  const auto specs =
      bench::FilterOpSpecs(gpu ? bench::GpuOpSpecs() : bench::AllOpSpecs(), options.filter);
  if (specs.empty()) {
    return Error(ErrorCode::kNotFound, "no operator has '{}' in its name; --list shows all",
                 options.filter);
  }
  if (options.list) {
    for (const bench::OpSpec& spec : specs) fmt::print("{}\n", spec.name);
    return OkStatus();
  }
  const bench::Roofline roofline =
      gpu ? bench::MeasureGpuRoofline() : bench::MeasureRoofline(DetectCpuFeatures());
  if (!options.json) {
    fmt::print("{}", bench::RenderOpHeader(roofline, gpu ? device : "one core"));
  }
  std::vector<bench::OpResult> results;
  for (const bench::OpSpec& spec : specs) {
    results.push_back(bench::TimeOp(spec, roofline, options.timing));
    if (!options.json) fmt::print("{}", bench::RenderOpLine(results.back()));
    std::fflush(stdout);
  }
  if (options.json) fmt::print("{}\n", bench::ToJson(roofline, device, results));
  return OkStatus();
}

}  // namespace

void AddBenchOps(CLI::App& bench, Command& chosen) {
  CLI::App* command = bench.add_subcommand(
      "ops", "Time single operators on one core or one GPU, against its roofline");
  auto options = std::make_shared<BenchOpsOptions>();
  command->add_option("--filter", options->filter, "only operators with this in their name");
  command
      ->add_option("--device", options->device, "cpu or cuda; auto takes cuda where there is one")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command->add_option("--rounds", options->timing.rounds, "the median of so many")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--round-seconds", options->timing.round_s, "least length of a round")
      ->check(CLI::Range(1e-6, 60.0))
      ->capture_default_str();
  command->add_flag("--list", options->list, "print the names alone");
  command->add_flag("--json", options->json, "one JSON object");
  command->callback([&chosen, options] { chosen = [options] { return BenchOps(*options); }; });
}

}  // namespace hayate::app
