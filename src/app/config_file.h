#pragma once
// Options of a subcommand from a TOML file: one `option = value` a line, named like the flags
// without their dashes. (CLI11's own set_config serves the root command alone.)

#include <string>

namespace CLI {
class App;
}

namespace hayate::app {

// Gives the command the options of the file, except those that the command line or the environment
// has set. Runs inside the command's callback: an unreadable file, an unknown or repeated key and a
// bad value throw CLI::ParseError with a message that names file and key, as the parser itself
// does.
void ApplyConfigFile(CLI::App& command, const std::string& path);

}  // namespace hayate::app
