#pragma once
// Structured one-line logs to stderr through spdlog.
//   LOG_INFO("loaded {} tensors in {:.1f} s", n, seconds);
// Any thread. Never logs prompts or answers above debug level.

#include <spdlog/spdlog.h>

#include <string_view>

#include "base/status.h"

namespace hayate {

// Sets the level by name: trace, debug, info, warning, error, off. Call once at start-up.
Status SetLogLevel(std::string_view name);

}  // namespace hayate

#define LOG_DEBUG(...) ::spdlog::debug(__VA_ARGS__)
#define LOG_INFO(...) ::spdlog::info(__VA_ARGS__)
#define LOG_WARN(...) ::spdlog::warn(__VA_ARGS__)
#define LOG_ERROR(...) ::spdlog::error(__VA_ARGS__)
