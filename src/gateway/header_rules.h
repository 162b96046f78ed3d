#pragma once
// Which header fields pass through the gateway. End-to-end fields pass unchanged and once;
// hop-by-hop ones (RFC 9110 §7.6.1), and what `Connection` names, do not.

#include <string>
#include <string_view>
#include <vector>

#include "http/message.h"

namespace hayate::gateway {

struct HeaderRules {
  // When not empty, only these request fields pass, besides content-type, accept, authorization,
  // request ids and trace context.
  std::vector<std::string> allowed;
  std::vector<std::string> request_id_headers = {"x-request-id"};  // the first that is there counts
  bool drop_cors = false;  // the workers' own: the gateway says who may read
};

// The request's fields as lines for http::ClientRequest::raw_fields, but for Authorization, which
// may be the worker's own. `request_id` is added when the client sent none.
void AppendRequestFields(http::HeaderView headers, const HeaderRules& rules,
                         std::string_view request_id, std::string& out);

// The client's own request id, or empty.
std::string_view RequestIdOf(http::HeaderView headers, const HeaderRules& rules);

// The response's fields, copied so that they outlive the head they came with.
class ResponseFields {
 public:
  void Assign(http::HeaderView headers, const HeaderRules& rules, std::string_view request_id);
  std::vector<http::Header> View() const;
  void Clear() { text_.clear(), spans_.clear(); }

 private:
  struct Span {
    uint32_t name, name_size, value, value_size;
  };
  void Add(std::string_view name, std::string_view value);
  std::string text_;
  std::vector<Span> spans_;
};

}  // namespace hayate::gateway
