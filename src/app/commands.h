#pragma once
// The subcommands of the binary. Each Add… declares its flags and sets `run` when the user chose
// it.

#include <functional>
#include <string>

#include "app/model_options.h"
#include "base/status.h"

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace hayate::app {

// What the chosen subcommand does; its Status becomes the exit code and a line on stderr.
using Command = std::function<Status()>;

void AddServe(CLI::App& root, Command& chosen);
void AddChat(CLI::App& root, Command& chosen);
void AddGenerate(CLI::App& root, Command& chosen);
void AddGateway(CLI::App& root, Command& chosen);
void AddBench(CLI::App& root, Command& chosen);
void AddInspect(CLI::App& root, Command& chosen);
void AddTrace(CLI::App& root, Command& chosen);
void AddVersion(CLI::App& root, Command& chosen);

// Flags that choose and shape the model, in the groups "Model" and "Memory and scheduling".
void AddModelFlags(CLI::App& command, ModelOptions& options);
void AddSchedulingFlags(CLI::App& command, ModelOptions& options);
void AddSpeculationFlags(CLI::App& command, SpeculationFlags& options);

// For ->check(): low ≤ x ≤ high. CLI::Range and CLI::NonNegativeNumber let "nan" pass.
CLI::Validator NumberBetween(double low, double high);

// "did you mean --port?" for a flag that no option of the command has; empty when nothing is near.
std::string SuggestFlag(const CLI::App& command, const std::string& flag);

}  // namespace hayate::app
