#pragma once
// Markers in a text that is still growing.

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>

namespace hayate::text {

struct MarkerPlace {
  size_t begin = 0;
  std::string_view marker;  // empty: none is complete, but from `begin` on one may begin
};

// The first place in `text` where one of the markers stands or may yet stand; the longest of those
// that begin there. `begin` is text.size() when the whole text is free of them. Empty markers count
// for nothing.
template <typename Markers>
MarkerPlace FindMarker(std::string_view text, const Markers& markers) {
  for (size_t at = 0; at < text.size(); ++at) {
    const std::string_view rest = text.substr(at);
    MarkerPlace found{at, {}};
    bool may_begin = false;
    for (const std::string_view marker : markers) {
      if (marker.empty() || marker.front() != rest.front()) continue;
      if (rest.starts_with(marker)) {
        if (marker.size() > found.marker.size()) found.marker = marker;
      } else {
        may_begin |= marker.starts_with(rest);
      }
    }
    // A longer marker may still come of it: wait.
    if (may_begin) return {at, {}};
    if (!found.marker.empty()) return found;
  }
  return {text.size(), {}};
}

inline constexpr std::string_view kBlanks = " \t\r\n";

inline bool IsBlank(char c) { return kBlanks.find(c) != std::string_view::npos; }

}  // namespace hayate::text
