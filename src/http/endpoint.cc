#include "http/endpoint.h"

#include <netdb.h>
#include <sys/socket.h>

#include <charconv>
#include <cstddef>

#include "base/error.h"

namespace hayate::http {
namespace {

Result<uint16_t> ParsePort(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Error(ErrorCode::kInvalidArgument, "'{}' is not a port", text);
  }
  return port;
}

}  // namespace

std::string Endpoint::ToString() const {
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

Result<Url> ParseUrl(std::string_view text) {
  Url url;
  std::string_view rest = text;
  if (const size_t scheme = rest.find("://"); scheme != std::string_view::npos) {
    const std::string_view name = rest.substr(0, scheme);
    if (name != "http" && name != "https") {
      return Error(ErrorCode::kInvalidArgument, "url '{}': neither http:// nor https://", text);
    }
    if (name == "https") url.endpoint = {.port = 443, .tls = true};
    rest.remove_prefix(scheme + 3);
  }
  const size_t authority_end = std::min(rest.find_first_of("/?#"), rest.size());
  std::string_view authority = rest.substr(0, authority_end);
  std::string_view target = rest.substr(authority_end);
  target = target.substr(0, target.find('#'));

  if (!target.starts_with('/')) url.target.push_back('/');
  url.target.append(target);
  size_t host_end = authority.rfind(':');
  if (authority.starts_with('[')) {
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) {
      return Error(ErrorCode::kInvalidArgument, "url '{}': '[' is not closed", text);
    }
    url.endpoint.host = authority.substr(1, close - 1);
    host_end = close + 1 < authority.size() ? close + 1 : std::string_view::npos;
    if (host_end != std::string_view::npos && authority[host_end] != ':') {
      return Error(ErrorCode::kInvalidArgument, "url '{}': ':' must follow ']'", text);
    }
  } else {
    url.endpoint.host = authority.substr(0, host_end);
  }
  if (host_end != std::string_view::npos) {
    ASSIGN_OR_RETURN(url.endpoint.port, ParsePort(authority.substr(host_end + 1)));
  }
  const bool printable = text.find_first_of(" \t\r\n") == std::string_view::npos;
  if (url.endpoint.host.empty() || !printable) {
    return Error(ErrorCode::kInvalidArgument, "url '{}' has no valid host", text);
  }
  return url;
}

bool IsLoopback(std::string_view address) {
  constexpr std::string_view kMapped = "::ffff:";
  if (address == "::1") return true;
  if (address.starts_with(kMapped)) address.remove_prefix(kMapped.size());
  return address.starts_with("127.");
}

Result<SocketAddress> Resolve(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int error = getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &list);
  if (error != 0) {
    return Error(ErrorCode::kNotFound, "host '{}': {}", endpoint.host, gai_strerror(error));
  }
  // Of the kinds that a name may have, IPv4 first: what listens on "localhost" here does.
  const addrinfo* chosen = list;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family == AF_INET) {
      chosen = entry;
      break;
    }
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(chosen->ai_addr);
  SocketAddress address{{bytes, bytes + chosen->ai_addrlen}, chosen->ai_family};
  freeaddrinfo(list);
  return address;
}

}  // namespace hayate::http
