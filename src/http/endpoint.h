#pragma once
// Where a server listens or a client connects to.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hayate::http {

struct Endpoint {
  std::string host;  // name or address; IPv6 without brackets
  uint16_t port = 80;
  bool tls = false;

  // "host:port", IPv6 in brackets: the form of a Host header.
  std::string ToString() const;
};

// "http://host[:port][/path][?query]" in parts, or https. `target` starts with '/'.
struct Url {
  Endpoint endpoint;
  std::string target;
};
// kInvalidArgument for anything but an http or https URL with a host. The scheme may be left out.
Result<Url> ParseUrl(std::string_view text);

// A resolved address, ready for bind() or connect().
struct SocketAddress {
  std::vector<std::byte> bytes;  // a sockaddr
  int family = 0;
};

// Whether a numeric address is this machine's own: 127.0.0.0/8, ::1, or the former as IPv6.
bool IsLoopback(std::string_view address);

// Blocks on the system's resolver, so never on an IoThread that serves. An address literal does not
// block. kNotFound names the host.
Result<SocketAddress> Resolve(const Endpoint& endpoint);

}  // namespace hayate::http
