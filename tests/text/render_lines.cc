// Renders templates for test_jinja.py. One JSON object a line on stdin:
//   {"template": "…", "context": {…}, "now": 1700000000}
// and one a line on stdout: {"output": "…"} or {"error": "…"}.

#include <ctime>
#include <iostream>
#include <string>

#include "base/json_writer.h"
#include "text/template/json.h"
#include "text/template/template.h"

namespace {

using hayate::Result;
using hayate::text::jinja::ParseJson;
using hayate::text::jinja::RenderOptions;
using hayate::text::jinja::Template;
using hayate::text::jinja::Value;

Result<std::string> RenderLine(const std::string& line) {
  ASSIGN_OR_RETURN(const Value request, ParseJson(line));
  ASSIGN_OR_RETURN(const Template compiled,
                   Template::Compile(request.dict().Find("template")->string()));
  RenderOptions options;
  if (const Value* now = request.dict().Find("now")) {
    const auto seconds = static_cast<std::time_t>(now->as_int());
    gmtime_r(&seconds, &options.now);
  }
  return compiled.Render(request.dict().Find("context")->dict(), options);
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const Result<std::string> rendered = RenderLine(line);
    std::string out;
    hayate::JsonWriter writer(out);
    writer.BeginObject();
    if (rendered.ok()) {
      writer.Field("output", rendered.value());
    } else {
      writer.Field("error", rendered.status().message());
    }
    writer.EndObject();
    std::cout << out << std::endl;
  }
}
