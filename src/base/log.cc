#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <memory>
#include <utility>

#include "base/error.h"

namespace hayate {

Status SetLogLevel(std::string_view name) {
  constexpr std::pair<std::string_view, spdlog::level::level_enum> kLevels[] = {
      {"trace", spdlog::level::trace}, {"debug", spdlog::level::debug},
      {"info", spdlog::level::info},   {"warning", spdlog::level::warn},
      {"warn", spdlog::level::warn},   {"error", spdlog::level::err},
      {"off", spdlog::level::off}};
  for (const auto& [level_name, level] : kLevels) {
    if (level_name != name) continue;
    auto logger = std::make_shared<spdlog::logger>(
        "hayate", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
    logger->set_level(level);
    spdlog::set_default_logger(std::move(logger));
    return OkStatus();
  }
  return Error(ErrorCode::kInvalidArgument,
               "log level '{}' is unknown; use trace, debug, info, warning, error or off", name);
}

}  // namespace hayate
