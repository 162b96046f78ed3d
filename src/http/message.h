#pragma once
// The parts of HTTP messages that callers see.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace hayate::http {

struct Header {
  std::string_view name;
  std::string_view value;  // without surrounding blanks
};

// Header fields in the order they came. A view: see its owner for how long it lives.
class HeaderView {
 public:
  HeaderView() = default;
  explicit HeaderView(std::span<const Header> headers) : headers_(headers) {}

  // The first field of that name, compared without case.
  std::optional<std::string_view> Find(std::string_view name) const;

  auto begin() const { return headers_.begin(); }
  auto end() const { return headers_.end(); }
  size_t size() const { return headers_.size(); }

 private:
  std::span<const Header> headers_;
};

bool EqualsIgnoreCase(std::string_view a, std::string_view b);

// "Not Found" for 404; "Unknown" for a status without a name.
std::string_view ReasonPhrase(int status);

// The value of `name` in a query string ("a=1&b=x%20y"), decoded ('+' is a blank); nullopt when
// absent.
std::optional<std::string> QueryValue(std::string_view query, std::string_view name);

// Decodes %XX; a malformed escape stays as it is.
std::string PercentDecode(std::string_view text);

}  // namespace hayate::http
