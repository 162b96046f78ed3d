// Service: the responses that are kept.

#include <algorithm>
#include <charconv>
#include <functional>

#include "api/send_error.h"
#include "api/service.h"
#include "base/error.h"
#include "base/json_writer.h"

namespace hayate::api {
namespace {

constexpr size_t kMaxPage = 100;
constexpr size_t kDefaultPage = 20;

// The segment after "/v1/responses/".
std::string IdOf(std::string_view path) {
  path.remove_prefix(std::string_view("/v1/responses/").size());
  return http::PercentDecode(path.substr(0, path.find('/')));
}

// An item with its id in front; one that its client has named keeps its own.
struct ListedItem {
  std::string id;
  std::string json;
};

ListedItem Listed(const std::string& item, const std::string& response, size_t index) {
  constexpr std::string_view kId = R"({"id":")";
  if (item.starts_with(kId)) {
    return {item.substr(kId.size(), item.find('"', kId.size()) - kId.size()), item};
  }
  std::string id = response + "_" + std::to_string(index);
  std::string json = "{\"id\":";
  AppendJsonString(json, id);
  json += (item == "{}" ? "" : ",") + item.substr(1);
  return {std::move(id), std::move(json)};
}

struct Page {
  size_t limit = kDefaultPage;
  bool newest_first = true;
  std::optional<std::string> after;
};

Result<Page> ReadPage(std::string_view query) {
  Page page;
  page.after = http::QueryValue(query, "after");
  if (const auto order = http::QueryValue(query, "order")) {
    if (*order != "asc" && *order != "desc") return InvalidField("order", "must be asc or desc");
    page.newest_first = *order == "desc";
  }
  if (const auto limit = http::QueryValue(query, "limit")) {
    const char* end = limit->data() + limit->size();
    const auto parsed = std::from_chars(limit->data(), end, page.limit);
    if (parsed.ec != std::errc() || parsed.ptr != end || page.limit < 1 || page.limit > kMaxPage) {
      return InvalidField("limit", "must be between 1 and {}", kMaxPage);
    }
  }
  return page;
}

Result<std::string> RenderPage(const ResponseItems& items, const std::string& response,
                               const Page& page) {
  std::vector<ListedItem> listed;
  for (size_t i = 0; i < items.size(); ++i) listed.push_back(Listed(items[i], response, i));
  if (page.newest_first) std::reverse(listed.begin(), listed.end());
  auto begin = listed.begin();
  if (page.after) {
    begin = std::find_if(listed.begin(), listed.end(),
                         [&](const ListedItem& item) { return item.id == *page.after; });
    if (begin == listed.end()) return InvalidField("after", "names no item of this response");
    ++begin;
  }
  const auto rest = static_cast<size_t>(listed.end() - begin);
  const auto end = begin + static_cast<ptrdiff_t>(std::min(rest, page.limit));
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("object", "list");
  json.Key("data");
  json.BeginArray();
  for (auto item = begin; item != end; ++item) json.Raw(item->json);
  json.EndArray();
  json.Field("first_id", begin == end ? "" : begin->id);
  json.Field("last_id", begin == end ? "" : (end - 1)->id);
  json.Field("has_more", end != listed.end());
  json.EndObject();
  return out;
}

}  // namespace

uint64_t Service::OwnerOf(const http::Request& request) {
  std::string key;
  for (const char* name : {"Authorization", "x-api-key"}) {
    key += request.headers.Find(name).value_or("");
    key += '\n';
  }
  return std::hash<std::string>()(key);
}

void Service::RetrieveResponse(http::Request& request, http::ResponseWriter writer) {
  if (http::QueryValue(request.query, "stream").value_or("false") != "false") {
    return SendError(writer, InvalidField("stream", "a stream cannot be taken up again"));
  }
  const auto body = responses_.Body(IdOf(request.path), OwnerOf(request));
  body.ok() ? SendJson(writer, *body) : SendError(writer, body.status());
}

void Service::DeleteResponse(http::Request& request, http::ResponseWriter writer) {
  const std::string id = IdOf(request.path);
  const Status erased = responses_.Erase(id, OwnerOf(request));
  if (!erased.ok()) return SendError(writer, erased);
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Field("id", id);
  json.Field("object", "response");
  json.Field("deleted", true);
  json.EndObject();
  SendJson(writer, body);
}

void Service::CancelResponse(http::Request& request, http::ResponseWriter writer) {
  const auto body = responses_.Cancel(IdOf(request.path), OwnerOf(request));
  body.ok() ? SendJson(writer, *body) : SendError(writer, body.status());
}

void Service::ListResponseInput(http::Request& request, http::ResponseWriter writer) {
  const std::string id = IdOf(request.path);
  const auto page = ReadPage(request.query);
  if (!page.ok()) return SendError(writer, page.status());
  const auto items = responses_.Input(id, OwnerOf(request));
  if (!items.ok()) return SendError(writer, items.status());
  const auto body = RenderPage(**items, id, *page);
  body.ok() ? SendJson(writer, *body) : SendError(writer, body.status());
}

}  // namespace hayate::api
