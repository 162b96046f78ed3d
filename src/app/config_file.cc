#include "app/config_file.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <vector>

#include "app/commands.h"

namespace hayate::app {
namespace {

CLI::Option& FindOption(CLI::App& command, const CLI::ConfigItem& item) {
  const std::string flag = "--" + item.fullname();
  for (CLI::Option* option : command.get_options()) {
    if (option->get_configurable() && option->check_name(flag)) return *option;
  }
  const std::string hint = SuggestFlag(command, flag);
  throw CLI::ConfigError(hint.empty() ? "no such option" : "no such option; " + hint);
}

void SetOption(CLI::Option& option, const CLI::ConfigItem& item, const CLI::Config& format) {
  if (option.get_expected_min() == 0) {  // a flag
    option.add_result(option.get_flag_value(item.name, format.to_flag(item)));
  } else {
    // On the command line a flag given twice takes its last value; a list in a file is a mistake.
    if (static_cast<int>(item.inputs.size()) > option.get_items_expected_max()) {
      throw CLI::ConfigError("takes one value");
    }
    option.add_result(item.inputs);
  }
  option.run_callback();
}

}  // namespace

void ApplyConfigFile(CLI::App& command, const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    throw CLI::FileError(path + ": no such file");
  }
  CLI::ConfigTOML format;
  std::vector<const CLI::Option*> set_by_file;
  for (const CLI::ConfigItem& item : format.from_file(path)) {
    if (item.name == "++" || item.name == "--") continue;  // a section's ends
    try {
      CLI::Option& option = FindOption(command, item);
      if (std::find(set_by_file.begin(), set_by_file.end(), &option) != set_by_file.end()) {
        throw CLI::ConfigError("is set twice");
      }
      if (option.count() > 0) continue;
      set_by_file.push_back(&option);
      SetOption(option, item, format);
    } catch (const CLI::ParseError& error) {
      throw CLI::ConfigError(fmt::format("{}: {}: {}", path, item.fullname(), error.what()));
    }
  }
}

}  // namespace hayate::app
