#include <CLI/CLI.hpp>

#include "app/bench_commands.h"
#include "app/commands.h"

namespace hayate::app {

void AddBench(CLI::App& root, Command& chosen) {
  CLI::App* bench = root.add_subcommand("bench", "Measure the server, the steps or the operators");
  bench->require_subcommand(1);
  AddBenchServe(*bench, chosen);
  AddBenchStep(*bench, chosen);
  AddBenchOffline(*bench, chosen);
  AddBenchOps(*bench, chosen);
  AddBenchAllReduce(*bench, chosen);
  AddBenchGateway(*bench, chosen);
  AddBenchRanks(*bench, chosen);
}

}  // namespace hayate::app
