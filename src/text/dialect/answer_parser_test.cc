// Every dialect on whole answers, broken answers and random ones; and always the same parts however
// the text is cut.

#include "text/dialect/answer_parser.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "text/dialect/call_reader.h"
#include "text/dialect/json_scanner.h"

namespace hayate::text {
namespace {

struct Call {
  std::string name;
  std::string arguments;
  bool operator==(const Call&) const = default;
};

struct Parts {
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;
  bool operator==(const Parts&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Parts& parts) {
  out << "reasoning «" << parts.reasoning << "» content «" << parts.content << "»";
  for (const Call& call : parts.calls) out << " " << call.name << "«" << call.arguments << "»";
  return out;
}

Parts Join(const std::vector<AnswerEvent>& events) {
  Parts parts;
  for (const AnswerEvent& event : events) {
    switch (event.part) {
      case AnswerPart::kReasoning:
        EXPECT_EQ(parts.content, "") << "thinking after content";
        parts.reasoning += event.text;
        break;
      case AnswerPart::kContent:
        parts.content += event.text;
        break;
      case AnswerPart::kCallName:
        EXPECT_EQ(static_cast<size_t>(event.call), parts.calls.size());
        parts.calls.push_back({event.text, ""});
        break;
      case AnswerPart::kCallArguments:
        EXPECT_EQ(static_cast<size_t>(event.call) + 1, parts.calls.size());
        if (!parts.calls.empty()) parts.calls.back().arguments += event.text;
        break;
    }
  }
  return parts;
}

AnswerFormat Format(std::string_view reasoning, std::string_view tools, bool inside = false) {
  AnswerFormat format;
  format.reasoning = FindReasoningDialect(reasoning);
  format.tools = FindToolDialect(tools);
  format.starts_inside = inside;
  format.signatures = {{"add", {}}, {"get_weather", {"city", "note"}}};
  EXPECT_TRUE(reasoning.empty() || format.reasoning != nullptr) << reasoning;
  EXPECT_TRUE(tools.empty() || format.tools != nullptr) << tools;
  return format;
}

Parts Parse(const AnswerFormat& format, const std::vector<std::string>& pieces) {
  const auto parser = MakeAnswerParser(format);
  std::vector<AnswerEvent> events;
  for (const std::string& piece : pieces) parser->Feed(piece, events);
  parser->Finish(events);
  return Join(events);
}

// Whole; every cut into two; byte by byte; random cuts. The parser may not see a difference.
Parts ParseEveryWay(const AnswerFormat& format, const std::string& text) {
  const Parts whole = Parse(format, {text});
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(Parse(format, {text.substr(0, cut), text.substr(cut)}), whole) << "cut at " << cut;
  }
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(Parse(format, bytes), whole);
  Rng rng(7);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + rng.Below(9);
      pieces.push_back(text.substr(at, length));
      at += length;
    }
    EXPECT_EQ(Parse(format, pieces), whole);
  }
  return whole;
}

TEST(Reasoning, StandsBetweenItsMarkers) {
  const AnswerFormat r1 = Format("deepseek-r1", "", true);
  EXPECT_EQ(ParseEveryWay(r1, "\nI think\nso. \n</think>\n\nYes."),
            (Parts{"I think\nso.", "Yes."}));
  EXPECT_EQ(ParseEveryWay(r1, "<think>again</think>x"), (Parts{"again", "x"}));
  EXPECT_EQ(ParseEveryWay(r1, "cut off </thi"), (Parts{"cut off </thi", ""}));
  EXPECT_EQ(ParseEveryWay(r1, "</think>"), (Parts{"", ""}));
  const AnswerFormat qwen = Format("qwen3", "");
  EXPECT_EQ(ParseEveryWay(qwen, "<think>\na\n</think>\n\nb </think> c"),
            (Parts{"a", "b </think> c"}));
  EXPECT_EQ(ParseEveryWay(qwen, " no thinking <think>"), (Parts{"", " no thinking <think>"}));
  EXPECT_EQ(ParseEveryWay(qwen, "<thi"), (Parts{"", "<thi"}));
}

TEST(Reasoning, BeginsWhereThePromptEnds) {
  const ReasoningDialect& v31 = *FindReasoningDialect("deepseek-v3.1");
  EXPECT_EQ(PlaceOfThinking(v31, "<｜Assistant｜><think>"), ThinkingPlace::kInside);
  EXPECT_EQ(PlaceOfThinking(v31, "assistant\n<think>\n"), ThinkingPlace::kInside);
  EXPECT_EQ(PlaceOfThinking(v31, "<｜Assistant｜></think>"), ThinkingPlace::kNone);
  EXPECT_EQ(PlaceOfThinking(v31, "<｜Assistant｜>"), ThinkingPlace::kMayBegin);
  const ReasoningDialect& r1 = *FindReasoningDialect("deepseek-r1");
  EXPECT_EQ(PlaceOfThinking(r1, "<｜Assistant｜>"), ThinkingPlace::kInside);
  EXPECT_EQ(PlaceOfThinking(r1, "<think>\n\n</think>\n\n"), ThinkingPlace::kNone);
}

TEST(ToolCalls, OfEveryDialectAreFound) {
  const Parts two{
      "", "I'll look.", {{"get_weather", R"({"city": "Oslo"})"}, {"add", R"({"a":2})"}}};
  const auto expect = [](const char* dialect, const std::string& text, const Parts& parts) {
    EXPECT_EQ(ParseEveryWay(Format("", dialect), text), parts) << dialect;
  };
  expect(
      "hermes",
      "I'll look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n"
      "</tool_call>\n<tool_call>{\"arguments\":{\"a\":2},\"name\":\"add\"}</tool_call>",
      two);
  expect(
      "llama3",
      "I'll look.<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}; "
      "{\"name\": \"add\", \"parameters\": {\"a\":2}}",
      two);
  expect(
      "mistral",
      "I'll look. [TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}, "
      "{\"name\": \"add\", \"arguments\": {\"a\":2}}]",
      two);
  expect("mistral",
         "I'll look.[TOOL_CALLS]get_weather[CALL_ID]abc123[ARGS]{\"city\": \"Oslo\"}"
         "[TOOL_CALLS]add[ARGS]{\"a\":2}",
         two);
  expect("deepseekv3",
         "I'll look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
         "```json\n{\"city\": \"Oslo\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function"
         "<｜tool▁sep｜>add\n```json\n{\"a\":2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
         two);
  expect("deepseekv31",
         "I'll look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
         "{\"city\": \"Oslo\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\":2}"
         "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
         two);
  const Parts spaced{
      "", "I'll look.", {{"get_weather", R"({"city": "Oslo"})"}, {"add", R"({"a": 2})"}}};
  expect("qwen3_coder",
         "I'll look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
         "</function>\n</tool_call>\n<tool_call>\n<function=add>\n<parameter=a>\n2\n</parameter>\n"
         "</function>\n</tool_call>",
         spaced);
  for (const auto& [dialect, tag] :
       {std::pair("deepseekv32", "function_calls"), std::pair("deepseekv4", "tool_calls")}) {
    expect(
        dialect,
        std::string("I'll look.\n\n<｜DSML｜") + tag +
            ">\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" "
            "string=\"true\">Oslo</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke "
            "name=\"add\">\n<｜DSML｜parameter name=\"a\" string=\"false\">2</｜DSML｜parameter>\n"
            "</｜DSML｜invoke>\n</｜DSML｜" +
            tag + ">",
        spaced);
  }
  expect(
      "deepseekv41",
      "I'll look.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"get_weather\">\n<｜DSML｜ parameter "
      "name=\"city\" string=\"true\">Oslo</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n<｜DSML｜ "
      "invoke "
      "name=\"add\">\n<｜DSML｜ parameter name=\"a\" string=\"false\">2</｜DSML｜ parameter>\n"
      "</｜DSML｜ invoke>\n</｜DSML｜ calls>",
      spaced);
  expect("pythonic", "[get_weather(city='Oslo'), add(a=2)]", {"", "", spaced.calls});
  expect("json", R"([{"name": "add", "parameters": {"a":2}}])", {"", "", {{"add", "{\"a\":2}"}}});
  expect("llama3", R"({"name": "add", "parameters": {"a":2}})", {"", "", {{"add", "{\"a\":2}"}}});
}

TEST(ToolCalls, OfChannelsAreFound) {
  const AnswerFormat format = Format("gpt-oss", "gpt-oss");
  EXPECT_EQ(ParseEveryWay(format,
                          "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>"
                          "commentary to=functions.add <|constrain|>json<|message|>{\"a\":2}"),
            (Parts{"Hm.", "", {{"add", "{\"a\":2}"}}}));
  EXPECT_EQ(ParseEveryWay(format,
                          "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
                          "<|channel|>final<|message|>Yes <b>."),
            (Parts{"Hm.", "Yes <b>."}));
  EXPECT_EQ(ParseEveryWay(format, "plain text"), (Parts{"", "plain text"}));
  for (const char* plain : {"to be", " t", "\n", "to=", "<|chan"}) {
    EXPECT_EQ(ParseEveryWay(format, plain), (Parts{"", plain}));
  }
  EXPECT_EQ(ParseEveryWay(format, "to=functions.add<|message|>{}"),
            (Parts{"", "", {{"add", "{}"}}}));
}

TEST(ToolCalls, FollowTheThinking) {
  EXPECT_EQ(ParseEveryWay(Format("qwen3", "qwen25"),
                          "<think>\nA <tool_call> would help.\n</think>\n\n<tool_call>\n"
                          "{\"name\":\"add\",\"arguments\":{}}\n</tool_call>"),
            (Parts{"A <tool_call> would help.", "", {{"add", "{}"}}}));
}

TEST(ToolCalls, ThatAreNoneComeOutAsContent) {
  const auto content = [](const char* dialect, const std::string& text) {
    EXPECT_EQ(ParseEveryWay(Format("", dialect), text), (Parts{"", text})) << dialect;
  };
  content("hermes", "the tag <tool_call> opens a call, </tool_call> closes it");
  content("hermes", "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>");
  content("hermes", "<tool_call>{\"name\": \"add\", \"arguments\": [1]}");
  content("hermes", "<tool_call>{\"arguments\": {}}");
  content("hermes", "<tool_call>\n{\"name\": \"add\"");
  content("hermes", "a <tool_cal");
  content("hermes", "<tool_call>");
  content("hermes", "trailing blanks \n ");
  content("llama3", "{\"a\": 1} is an object");
  content("llama3", "  {\"name\": \"nobody\"}");
  content("pythonic", "[1, 2] is a list");
  content("pythonic", "[add(a=open('x'))]");
  content("mistral", "[TOOL_CALLS]no such name[ARGS]{}");
  content("deepseekv31", "<｜tool▁calls▁begin｜> and nothing");
  content("qwen3_coder", "<tool_call>\n<function=nope>\n</function>");
  content("deepseekv4", "<｜DSML｜ is a marker; <｜DSML｜tool_calls> too");
}

TEST(ToolCalls, BrokenInTheMiddleKeepWhatWasSent) {
  const Parts parts = ParseEveryWay(Format("", "hermes"),
                                    "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": <b");
  EXPECT_EQ(parts, (Parts{"", "<b", {{"add", "{\"a\": "}}}));
  const Parts recovered = ParseEveryWay(
      Format("", "hermes"),
      "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": <tool_call>{\"name\": \"add\"}");
  EXPECT_EQ(recovered.calls.size(), 2u);
}

TEST(ToolCalls, TagsBecomeJsonWhateverTheirValues) {
  EXPECT_EQ(
      ParseEveryWay(Format("", "qwen3_coder"),
                    "<tool_call>\n<function=get_weather>\n<parameter=city>\n\"a\\b\"\n\t漢\n\n"
                    "</parameter>\n<parameter=days>\n[1, 2]\n</parameter>\n<parameter=x>\n"
                    "no json\n</parameter>\n<parameter=note>\n</parameter>\n</function>"),
      (Parts{"",
             "",
             {{"get_weather",
               R"({"city": "\"a\\b\"\n\t漢\n", "days": [1, 2], "x": "no json", "note": ""})"}}}));
}

TEST(ToolCalls, PythonLiteralsBecomeJson) {
  const std::string arguments =
      R"_({"city": "O's \"lo", "days": [1, -2.5e3, [true, null]], "o": {"k": "v,)"}})_";
  const Parts parts = ParseEveryWay(Format("", "pythonic"),
                                    "[get_weather(city='O\\'s \"lo', days=[1, -2.5e3, (True, "
                                    "None)], o={'k': \"v,)\"}), add()]");
  EXPECT_EQ(parts, (Parts{"", "", {{"get_weather", arguments}, {"add", "{}"}}}));
}

TEST(ToolCalls, AreTheSameForEveryCutOfRandomText) {
  const std::vector<std::string> scraps = {"<tool_call>",
                                           "</tool_call>",
                                           "{\"name\": \"add\"",
                                           ", \"arguments\": {\"a\": [1, \"x\"]}}",
                                           "}",
                                           " ",
                                           "\n",
                                           "text",
                                           "<",
                                           "[",
                                           "]",
                                           "[TOOL_CALLS]",
                                           "add[ARGS]{",
                                           "<think>",
                                           "</think>",
                                           "add(a='b')",
                                           ", ",
                                           "\"",
                                           "\\",
                                           "<function=add>",
                                           "</function>",
                                           "<parameter=a>",
                                           "</parameter>",
                                           "<｜tool▁calls▁begin｜>",
                                           "<｜tool▁call▁begin｜>add<｜tool▁sep｜>{}",
                                           "<｜tool▁call▁end｜>",
                                           "<|channel|>final",
                                           "<|message|>",
                                           "<|end|>",
                                           "<|python_tag|>",
                                           "漢",
                                           "<｜DSML｜tool_calls>",
                                           "<｜DSML｜invoke name=\"add\">",
                                           "</｜DSML｜invoke>"};
  Rng rng(11);
  for (const ToolDialect& dialect : ToolDialects()) {
    for (int round = 0; round < 60; ++round) {
      std::string text;
      const uint32_t count = rng.Below(14);
      for (uint32_t i = 0; i < count; ++i) {
        text += scraps[rng.Below(static_cast<uint32_t>(scraps.size()))];
      }
      AnswerFormat format = Format(round % 2 == 0 ? "qwen3" : "", dialect.name);
      const Parts whole = Parse(format, {text});
      std::vector<std::string> bytes;
      for (const char c : text) bytes.emplace_back(1, c);
      ASSERT_EQ(Parse(format, bytes), whole) << dialect.name << ": " << text;
    }
  }
}

TEST(Dialects, AreRecognisedByTheTemplate) {
  EXPECT_EQ(DetectToolDialect("… <tool_call> …")->name, "qwen");
  EXPECT_EQ(DetectToolDialect("<tool_call>\n<function=")->name, "qwen3_coder");
  EXPECT_EQ(DetectToolDialect("<|python_tag|>")->name, "llama3");
  EXPECT_EQ(DetectToolDialect("plain"), nullptr);
  EXPECT_EQ(DetectReasoningDialect("enable_thinking … </think>")->name, "qwen3");
  EXPECT_EQ(DetectReasoningDialect("plain"), nullptr);
}

TEST(JsonScanner, TakesWhatIsJsonAndNothingElse) {
  const auto whole = [](const std::string& text) {
    JsonScanner scanner;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto step = scanner.Push(text[i]);
      if (step == JsonScanner::Step::kBad) return false;
      if (step == JsonScanner::Step::kDone) return i + 1 == text.size();
    }
    return false;
  };
  for (const char* text :
       {"{}", "[]", "\"a\"", R"({"a":[1,-0.5e+3,true,false,null,{"b":"\u00e9\n"}], "c" : [] })",
        "[0,10]", "[[[]]]"}) {
    EXPECT_TRUE(whole(text)) << text;
    EXPECT_TRUE(IsJsonValue(text)) << text;
  }
  for (const char* text :
       {"{,}", "[1,]", "{\"a\"}", "{\"a\":}", "[01]", "[1.]", "[.5]", "[+1]", "[tru]", "[nulll]",
        "{a:1}", "[\"\\x\"]", "[\"\\u12g4\"]", "[1 2]", "[-]", "[1e]", "{\"a\":1,}", "1"}) {
    EXPECT_FALSE(whole(text)) << text;
  }
}

}  // namespace
}  // namespace hayate::text
