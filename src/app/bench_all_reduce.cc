#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "app/bench_commands.h"
#include "base/error.h"
#include "bench/all_reduce_timing.h"

namespace hayate::app {
namespace {

struct BenchAllReduceOptions {
  int ranks = 2;
  bool json = false;
};

Status BenchAllReduce(const BenchAllReduceOptions& options) {
  constexpr int64_t kKib = 1024;
  constexpr int64_t kSizes[] = {8 * kKib,    64 * kKib,   256 * kKib, 512 * kKib,
                                1024 * kKib, 2048 * kKib, 8192 * kKib};
  ASSIGN_OR_RETURN(const auto results, bench::TimeAllReduces(options.ranks, kSizes));
  if (options.json) {
    fmt::print("{}\n", bench::ToJson(options.ranks, results));
    return OkStatus();
  }
  for (const bench::AllReduceResult& result : results) {
    fmt::print("{:>6} KB {:>9.2f} us\n", result.bytes / kKib, result.us);
  }
  return OkStatus();
}

}  // namespace

void AddBenchAllReduce(CLI::App& bench, Command& chosen) {
  CLI::App* command =
      bench.add_subcommand("all-reduce", "Time sums over the GPUs of this machine (bf16)");
  auto options = std::make_shared<BenchAllReduceOptions>();
  command->add_option("--tp-size,--tp", options->ranks, "GPUs that take part")
      ->check(CLI::Range(2, 8))
      ->capture_default_str();
  command->add_flag("--json", options->json, "one JSON object");
  command->callback(
      [&chosen, options] { chosen = [options] { return BenchAllReduce(*options); }; });
}

}  // namespace hayate::app
