#pragma once
// The subcommands of `hayate bench`.

#include "app/commands.h"

namespace hayate::app {

void AddBenchAllReduce(CLI::App& bench, Command& chosen);
void AddBenchGateway(CLI::App& bench, Command& chosen);
void AddBenchOffline(CLI::App& bench, Command& chosen);
void AddBenchOps(CLI::App& bench, Command& chosen);
void AddBenchRanks(CLI::App& bench, Command& chosen);
void AddBenchServe(CLI::App& bench, Command& chosen);
void AddBenchStep(CLI::App& bench, Command& chosen);

}  // namespace hayate::app
