#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/machine.h"
#include "tensor/cpu_features.h"

namespace hayate::app {

void AddVersion(CLI::App& root, Command& chosen) {
  CLI::App* command =
      root.add_subcommand("version", "Print the version and what this machine offers");
  command->callback([&chosen] {
    chosen = [] {
      fmt::print("hayate {}\ncpu: {} ({})\n", HAYATE_VERSION, CpuName(),
                 ToString(DetectCpuFeatures()));
      return OkStatus();
    };
  });
}

}  // namespace hayate::app
