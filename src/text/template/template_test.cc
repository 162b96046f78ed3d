#include "text/template/template.h"

#include <gtest/gtest.h>

#include <thread>

#include "text/template/json.h"

namespace hayate::text::jinja {
namespace {

Result<std::string> Render(std::string_view source, std::string_view context = "{}",
                           const RenderOptions& options = {}) {
  ASSIGN_OR_RETURN(const Value value, ParseJson(context));
  ASSIGN_OR_RETURN(const Template compiled, Template::Compile(source));
  return compiled.Render(value.dict(), options);
}

std::string ErrorOf(std::string_view source, std::string_view context = "{}",
                    const RenderOptions& options = {}) {
  const Result<std::string> result = Render(source, context, options);
  if (result.ok()) return "rendered: " + result.value();
  EXPECT_EQ(result.status().code(), ErrorCode::kInvalidArgument);
  return result.status().message();
}

TEST(Template, RendersAConversation) {
  const char* source =
      "{{ bos }}{% for m in messages %}\n"
      "  {%- if m.role == 'user' %}\n"
      "[U]{{ m.content | trim }}\n"
      "  {%- else %}\n"
      "[A]{{ m['content'] }}\n"
      "  {% endif %}\n"
      "{% endfor %}";
  EXPECT_EQ(Render(source, R"({"bos": "<s>", "messages": [{"role": "user", "content": " hi "},
                               {"role": "assistant", "content": "yo"}]})")
                .value(),
            "<s>[U]hi[A]yo\n");
}

TEST(Template, CompileErrorsNameLineAndColumn) {
  EXPECT_EQ(ErrorOf("a\n  {{ 1 + }}"),
            "template line 2, column 10: expected an expression, got '}}'");
  EXPECT_EQ(ErrorOf("{% if x %}\n{% nope %}{% endif %}"),
            "template line 2, column 4: unknown or unsupported tag 'nope'");
  EXPECT_EQ(ErrorOf("é日{{ 'x }}"), "template line 1, column 6: this string is never closed");
  EXPECT_EQ(ErrorOf("{% for x in y %}\n\n"),
            "template line 2, column 1: this block is never closed: '{% endfor %}' is missing");
  EXPECT_EQ(ErrorOf("{{ (1] }}"), "template line 1, column 6: unexpected ']', expected ')'");
}

TEST(Template, RunErrorsNameLineAndColumnOfTheOperation) {
  EXPECT_EQ(ErrorOf("\n\n{{ a.b.c }}", R"({"a": {}})"),
            "template line 3, column 7: dict has no attribute 'b'");
  EXPECT_EQ(ErrorOf("{{ 'x' + 1 }}"),
            "template line 1, column 8: '+' does not work between str and int");
  EXPECT_EQ(ErrorOf("{% macro m(x) %}\n{{ x|nope }}{% endmacro %}{{ m(1) }}"),
            "template line 2, column 6: there is no filter 'nope'");
  EXPECT_EQ(ErrorOf("{{ [1].append(2) }}"),
            "template line 1, column 14: 'append' would change a list, which a template may not");
  EXPECT_EQ(ErrorOf("{{ 9223372036854775807 + 1 }}"),
            "template line 1, column 24: the result does not fit a 64-bit integer");
}

TEST(Template, RaiseExceptionIsItsMessageAlone) {
  EXPECT_EQ(ErrorOf("{% if true %}{{ raise_exception('Only ' ~ 2 ~ ' roles') }}{% endif %}"),
            "Only 2 roles");
}

TEST(Template, AnUnknownFilterInABranchNotTakenIsNoError) {
  EXPECT_EQ(Render("{{ 1|nope if false else 2 }}").value(), "2");
}

// Each would run for ages or fill the memory.
TEST(TemplateLimits, RunawayTemplatesAreStopped) {
  const char* sources[] = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}"
      "{% endfor %}",
      "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}"
      "{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}",
      "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}{{ ns.x }}",
      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
      "{{ 'x' * 999999999999 }}",
      "{{ [1] * 999999999999 }}",
      "{{ 'a' * 1000000 * 1000000 }}",
      "{{ '%999999999d' % 1 }}",
      "{{ '{:999999999}'.format(1) }}",
      "{{ range(100001) }}",
      "{{ [1]|tojson(indent=99999999) }}",
      "{% set a %}{% for i in range(99999) %}{% for j in range(99) "
      "%}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
      "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}{% endset %}",
      "{% for i in range(99999) %}{% set x = 'abcdefgh'.replace('', 'y' * 10000) %}{% endfor %}",
  };
  for (const char* source : sources) {
    const std::string error = ErrorOf(source);
    EXPECT_TRUE(error.starts_with("template line 1, column ")) << source << "\n" << error;
  }
}

TEST(TemplateLimits, AreThoseOfTheOptions) {
  RenderOptions options;
  options.limits.max_steps = 100;
  EXPECT_EQ(ErrorOf("{% for i in range(500) %}{{ i }}{% endfor %}", "{}", options),
            "template line 1, column 26: the template ran for more than 100 steps");
  options = {};
  options.limits.max_output_bytes = 10;
  EXPECT_EQ(Render("{{ 'x' * 10 }}", "{}", options).value(), "xxxxxxxxxx");
  EXPECT_EQ(ErrorOf("12345{{ 'x' * 6 }}", "{}", options),
            "template line 1, column 6: the template made a text of more than 10 bytes");
}

TEST(TemplateLimits, DeepSourcesAreRefused) {
  const std::string parentheses =
      "{{ " + std::string(5'000, '(') + "1" + std::string(5'000, ')') + " }}";
  EXPECT_NE(ErrorOf(parentheses).find("nested more than 120 levels deep"), std::string::npos);
  std::string negations = "{{ 1";
  std::string blocks;
  std::string sum = "{{ 1";
  for (int i = 0; i < 5'000; ++i) {
    negations.insert(3, "not ");
    blocks += "{% if true %}";
    sum += " + 1";
  }
  EXPECT_NE(ErrorOf(negations + " }}").find("levels deep"), std::string::npos);
  EXPECT_NE(ErrorOf(blocks).find("levels deep"), std::string::npos);
  EXPECT_NE(ErrorOf(sum + " }}").find("recurses more than"), std::string::npos);
  EXPECT_NE(ErrorOf(std::string(Template::kMaxSourceBytes + 1, 'x')).find("the limit is"),
            std::string::npos);
}

TEST(Template, ObjectsThatHoldEachOtherAreFreed) {
  // The address sanitizer watches this one.
  EXPECT_EQ(Render("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}"
                   "{% macro m() %}x{% endmacro %}{% set a.m = m %}{{ a.b.a.m() }}")
                .value(),
            "x");
}

TEST(Template, AMacroOutlivesTheTurnOfTheLoopThatDefinedIt) {
  EXPECT_EQ(Render("{% set ns = namespace() %}{% for i in [1, 2, 3] %}{% if loop.first %}"
                   "{% macro m() %}{{ i }}{% endmacro %}{% set ns.m = m %}{% endif %}{% endfor %}"
                   "{{ ns.m() }}")
                .value(),
            "1");
}

TEST(Template, OneTemplateRendersOnSeveralThreads) {
  const Template compiled =
      Template::Compile("{% for m in ms %}{{ m.a }}{{ m.b|tojson }}{% endfor %}").value();
  const Value context = ParseJson(R"({"ms": [{"a": 1, "b": ["x"]}, {"a": 2, "b": {}}]})").value();
  std::vector<std::thread> threads;
  std::vector<int> failures(4, 0);
  for (size_t t = 0; t < failures.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        if (compiled.Render(context.dict()).value() != "1[\"x\"]2{}") ++failures[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, std::vector<int>(4, 0));
}

TEST(ParseJson, KeepsTypesAndRefusesBadInput) {
  EXPECT_EQ(
      Render("{{ v }}", R"({"v": [1, 1.0, 18446744073709551615, "é", null, true, {"a": -0.0}]})")
          .value(),
      "[1, 1.0, 1.8446744073709552e+19, 'é', None, True, {'a': -0.0}]");
  EXPECT_EQ(Render("{{ v }}", R"({"v": 1, "w": 2, "v": 3})").value(), "3");
  for (const char* bad : {"", "{", "[1,]", "{\"a\": 1e999}", "\"\\ud800\"", "nul"}) {
    EXPECT_EQ(ParseJson(bad).status().code(), ErrorCode::kInvalidArgument) << bad;
  }
  const std::string deep = std::string(1'000, '[') + std::string(1'000, ']');
  EXPECT_FALSE(ParseJson(deep).ok());
}

}  // namespace
}  // namespace hayate::text::jinja
