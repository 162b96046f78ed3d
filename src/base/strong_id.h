#pragma once
// Ids that do not mix: StrongId<struct PageTag, int32_t> is no StrongId<struct SlotTag, int32_t>.

#include <compare>
#include <cstddef>
#include <functional>

namespace hayate {

template <typename Tag, typename Rep>
struct StrongId {
  Rep value{};
  friend constexpr auto operator<=>(const StrongId&, const StrongId&) = default;
};

template <typename Stream, typename Tag, typename Rep>
Stream& operator<<(Stream& stream, StrongId<Tag, Rep> id) {
  stream << id.value;
  return stream;
}

}  // namespace hayate

template <typename Tag, typename Rep>
struct std::hash<hayate::StrongId<Tag, Rep>> {
  size_t operator()(hayate::StrongId<Tag, Rep> id) const { return std::hash<Rep>{}(id.value); }
};
