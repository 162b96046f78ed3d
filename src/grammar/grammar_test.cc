// Compiling and matching: what a grammar accepts, what is refused and how the refusal reads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "grammar/compiled_grammar.h"
#include "grammar/forced_token.h"
#include "grammar/matcher.h"
#include "text/testing/small_tokenizers.h"

namespace hayate::grammar {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kThe = 257;   // "the"
constexpr int32_t kEnd = 258;   // ends an answer
constexpr int32_t kCall = 259;  // control token "<call>"
constexpr int32_t kVocab = 300;

std::shared_ptr<const Vocabulary> Bytes(std::vector<int32_t> markers = {}) {
  text::TokenizerSpec spec = text::testing::ByteLevelSpec({{"t", "h"}, {"th", "e"}});
  spec.added_tokens.push_back({.content = "<|end|>", .id = kEnd, .special = true});
  spec.added_tokens.push_back({.content = "<call>", .id = kCall, .special = true});
  const auto tokenizer = text::testing::Make(std::move(spec));
  return Vocabulary::Create(*tokenizer,
                            {.vocab_size = kVocab, .stop_ids = {kEnd}, .marker_ids = markers})
      .value();
}

Result<std::shared_ptr<const CompiledGrammar>> Compile(GrammarKind kind, std::string text) {
  return CompiledGrammar::Compile(Bytes(), {kind, std::move(text), "field"});
}

bool Accepts(GrammarKind kind, std::string source, const std::string& text) {
  const auto grammar = Compile(kind, std::move(source));
  EXPECT_TRUE(grammar.ok()) << grammar.status().ToString();
  if (!grammar.ok()) return false;
  Matcher matcher(*grammar);
  return matcher.AcceptText(text) && matcher.complete();
}

std::string Refusal(GrammarKind kind, std::string source) {
  const auto grammar = Compile(kind, std::move(source));
  EXPECT_FALSE(grammar.ok());
  if (grammar.ok()) return "";
  EXPECT_EQ(grammar.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(grammar.status().param(), "field");
  return grammar.status().message();
}

std::string SchemaRefusal(std::string source) {
  return Refusal(GrammarKind::kJsonSchema, std::move(source));
}

bool Allows(const std::vector<uint32_t>& mask, int32_t token) {
  return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
}

TEST(Matcher, AllowsAStopTokenOnlyWhereTheTextIsComplete) {
  Matcher matcher(Compile(GrammarKind::kRegex, "ab*").value());
  std::vector<uint32_t> mask(matcher.grammar().vocabulary().mask_words());
  EXPECT_EQ(matcher.FillMask(mask), MaskKind::kSome);
  EXPECT_TRUE(Allows(mask, 'a'));
  EXPECT_FALSE(Allows(mask, 'b'));
  EXPECT_FALSE(Allows(mask, kEnd));
  EXPECT_FALSE(matcher.Accept(kEnd));
  EXPECT_TRUE(matcher.Accept('a'));
  EXPECT_EQ(matcher.FillMask(mask), MaskKind::kSome);
  EXPECT_TRUE(Allows(mask, 'b'));
  EXPECT_TRUE(Allows(mask, kEnd));
  EXPECT_TRUE(matcher.Accept(kEnd));
  EXPECT_TRUE(matcher.ended());
  EXPECT_FALSE(matcher.Accept('b'));
}

TEST(Matcher, SaysWhenNothingButTheEndCanFollow) {
  Matcher matcher(Compile(GrammarKind::kJsonSchema, R"({"enum":["x"]})").value());
  std::vector<uint32_t> mask(matcher.grammar().vocabulary().mask_words());
  for (const char c : std::string("\"x")) EXPECT_TRUE(matcher.Accept(c));
  EXPECT_EQ(matcher.FillMask(mask), MaskKind::kSome);
  EXPECT_TRUE(matcher.Accept('"'));
  EXPECT_EQ(matcher.FillMask(mask), MaskKind::kOnlyStop);
}

TEST(Matcher, RollsBackAcceptedTokens) {
  Matcher matcher(Compile(GrammarKind::kRegex, "a(bc|de)").value());
  for (const char c : std::string("abc")) EXPECT_TRUE(matcher.Accept(c));
  matcher.Rollback(2);
  EXPECT_FALSE(matcher.Accept('c'));
  EXPECT_TRUE(matcher.Accept('d'));
  EXPECT_TRUE(matcher.Accept('e'));
  EXPECT_TRUE(matcher.complete());
}

TEST(Matcher, ABudgetHoldsAcrossRollbacks) {
  Matcher matcher(Compile(GrammarKind::kStructuralTag,
                          R"({"type":"structural_tag","format":{"type":"sequence","elements":[
      {"type":"tag","begin":"","content":{"type":"any_text","max_tokens":2},"end":"<e>"},
      {"type":"any_text"}]}})")
                      .value());
  std::vector<uint32_t> mask(matcher.grammar().vocabulary().mask_words());
  for (const char c : std::string("ab<e>x")) {
    matcher.FillMask(mask);
    EXPECT_TRUE(Allows(mask, c)) << c;
    EXPECT_EQ(Allows(mask, '?'), c == 'a' || c == 'b' || c == 'x') << c;
    // As drafts are tried: none, or one that is taken back.
    matcher.Rollback(0);
    if (matcher.Accept(c)) matcher.Rollback(1);
    EXPECT_TRUE(matcher.Accept(c));
  }
}

std::optional<int32_t> NextForced(Matcher& matcher) {
  std::vector<uint32_t> mask(matcher.grammar().vocabulary().mask_words());
  matcher.FillMask(mask);
  return ForcedToken(matcher.grammar().vocabulary(), mask);
}

TEST(ForcedToken, IsTheLongestSpellingOfTheTextThatMustFollow) {
  Matcher matcher(Compile(GrammarKind::kRegex, "a(then|them)").value());
  EXPECT_EQ(NextForced(matcher), 'a');
  EXPECT_TRUE(matcher.Accept('a'));
  EXPECT_EQ(NextForced(matcher), kThe);  // "t" and "th" are beginnings of it
  EXPECT_TRUE(matcher.Accept('t'));
  EXPECT_EQ(NextForced(matcher), 'h');
  EXPECT_TRUE(matcher.Accept('h'));
  EXPECT_TRUE(matcher.Accept('e'));
  EXPECT_EQ(NextForced(matcher), std::nullopt);  // "n" or "m"
}

TEST(ForcedToken, IsNoneWhereTheTextMayEnd) {
  Matcher matcher(Compile(GrammarKind::kRegex, "a(b|)").value());
  EXPECT_EQ(NextForced(matcher), 'a');
  EXPECT_TRUE(matcher.Accept('a'));
  EXPECT_EQ(NextForced(matcher), std::nullopt);
  EXPECT_TRUE(matcher.Accept('b'));
  EXPECT_EQ(NextForced(matcher), std::nullopt);
}

TEST(ForcedToken, IsNoneOfAMaskThatAllowsNothingOrEverything) {
  const auto vocabulary = Bytes();
  std::vector<uint32_t> mask(vocabulary->mask_words());
  EXPECT_EQ(ForcedToken(*vocabulary, mask), std::nullopt);
  std::ranges::fill(mask, ~uint32_t{0});
  EXPECT_EQ(ForcedToken(*vocabulary, mask), std::nullopt);
}

TEST(Matcher, NeverAllowsControlTokensNorIdsWithoutText) {
  Matcher matcher(Compile(GrammarKind::kRegex, "(.|\\n)*").value());
  std::vector<uint32_t> mask(matcher.grammar().vocabulary().mask_words());
  EXPECT_EQ(matcher.FillMask(mask), MaskKind::kSome);
  EXPECT_TRUE(Allows(mask, 'a'));
  EXPECT_FALSE(Allows(mask, kCall));
  EXPECT_FALSE(Allows(mask, kVocab - 1));
  EXPECT_FALSE(matcher.Accept(kCall));
  EXPECT_FALSE(matcher.Accept(kVocab + 5));
  EXPECT_FALSE(matcher.Accept(-1));
}

TEST(Matcher, AllowsAControlTokenThatIsAMarker) {
  Matcher matcher(
      CompiledGrammar::Compile(Bytes({kCall}), {GrammarKind::kRegex, "<call>a", "field"}).value());
  EXPECT_TRUE(matcher.Accept(kCall));
  EXPECT_TRUE(matcher.Accept('a'));
  EXPECT_TRUE(matcher.complete());
}

TEST(JsonObject, HoldsAnyObjectWithLittleWhiteSpace) {
  const auto accepts = [](const std::string& text) {
    return Accepts(GrammarKind::kJsonObject, "", text);
  };
  EXPECT_TRUE(accepts(R"({"a":[1,{"b":null}], "c":"\u00e9 \n"})"));
  EXPECT_TRUE(accepts("{}"));
  EXPECT_FALSE(accepts("[1]"));
  EXPECT_FALSE(accepts("7"));
  EXPECT_FALSE(accepts("{\"a\":" + std::string(17, ' ') + "1}"));
  EXPECT_FALSE(accepts(std::string(17, '\n') + "{}"));
  EXPECT_FALSE(accepts("{}" + std::string(1, '\n')));
}

TEST(JsonSchema, EnforcesWhatItSays) {
  const auto accepts = [](const char* schema, const std::string& text) {
    return Accepts(GrammarKind::kJsonSchema, schema, text);
  };
  const char* object = R"({"type":"object","properties":{"a":{"type":"integer","minimum":3,
      "maximum":100}},"required":["a","z"]})";
  EXPECT_TRUE(accepts(object, R"({"a":3,"z":[true]})"));
  EXPECT_FALSE(accepts(object, R"({"a":2,"z":1})"));
  EXPECT_FALSE(accepts(object, R"({"a":03,"z":1})"));
  EXPECT_FALSE(accepts(object, R"({"a":3})"));
  EXPECT_TRUE(accepts(R"({"type":"array"})", R"([1,"a"])"));
  EXPECT_TRUE(accepts(R"({"type":"object"})", R"({"free":1})"));
  const char* two = R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":2})";
  EXPECT_TRUE(accepts(two, "[1,2]"));
  EXPECT_FALSE(accepts(two, "[1]"));
  EXPECT_FALSE(accepts(two, "[1,2,3]"));
  EXPECT_TRUE(accepts(R"({"type":"array","minItems":0,"maxItems":0})", "[]"));
  EXPECT_FALSE(accepts(R"({"type":"array","minItems":0,"maxItems":0})", "[1]"));
  EXPECT_TRUE(accepts(R"({"type":"integer","maximum":1e30})", "12"));
  EXPECT_TRUE(accepts(R"({"type":"integer","maximum":9223372036854775807})", "-5"));
  EXPECT_FALSE(accepts(R"({"type":"integer","minimum":1.5,"maximum":2.5})", "1"));
}

TEST(JsonSchema, BoundsTheLengthOfStringsInCharacters) {
  const auto accepts = [](const std::string& schema, const std::string& text) {
    return Accepts(GrammarKind::kJsonSchema, schema, text);
  };
  // Short ones and long ones are compiled differently.
  for (const size_t most : {5, 128, 129, 700}) {
    const std::string schema =
        R"({"type":"string","minLength":2,"maxLength":)" + std::to_string(most) + "}";
    EXPECT_FALSE(accepts(schema, "\"a\"")) << most;
    EXPECT_TRUE(accepts(schema, "\"a\xC3\xA9\""));
    EXPECT_TRUE(accepts(schema, '"' + std::string(most, 'x') + '"'));
    EXPECT_TRUE(accepts(schema, "\"\xF0\x9F\xAB\xA0" + std::string(most - 1, ' ') + '"'));
    EXPECT_FALSE(accepts(schema, '"' + std::string(most + 1, 'x') + '"'));
    // Not JSON.
    for (const char* text : {"a\tb", "a\nb",
                             "a\x01"
                             "b",
                             "a\"b", "a\\"}) {
      EXPECT_FALSE(accepts(schema, '"' + std::string(text) + '"')) << most << text;
    }
  }
  EXPECT_FALSE(accepts(R"({"type":"string","minLength":3})", "\"ab\""));
  EXPECT_TRUE(accepts(R"({"type":"string","minLength":3})", '"' + std::string(1000, 'a') + '"'));
  EXPECT_FALSE(accepts(R"({"type":"string","minLength":3})", "\"abc\t\""));
  EXPECT_TRUE(accepts(R"({"type":["string","null"],"maxLength":1})", "null"));
  EXPECT_TRUE(accepts(R"({"type":"string","maxLength":0})", "\"\""));
  EXPECT_FALSE(accepts(R"({"type":"string","maxLength":0})", "\"a\""));
  EXPECT_THAT(SchemaRefusal(R"({"type":"string","minLength":4,"maxLength":3})"),
              HasSubstr("minLength 4"));
}

TEST(Compiling, RefusesExpressionsThatRepeatAPartTooOften) {
  EXPECT_THAT(Refusal(GrammarKind::kRegex, "[a-z]{10,3000}"), HasSubstr("3000 times"));
  EXPECT_THAT(Refusal(GrammarKind::kRegex, "(a{2}){129}"), HasSubstr("129 times"));
  EXPECT_THAT(Refusal(GrammarKind::kRegex, "a{129,}"), HasSubstr("at most 128"));
  EXPECT_THAT(SchemaRefusal(R"({"type":"array","items":{"type":"string","pattern":"^.{0,200}$"}})"),
              HasSubstr("/items/pattern"));
  EXPECT_THAT(SchemaRefusal(R"({"type":"object","patternProperties":{"^a{200}$":{}}})"),
              HasSubstr("/patternProperties"));
  EXPECT_TRUE(Accepts(GrammarKind::kRegex, "a{3,128}", "aaa"));
  EXPECT_TRUE(Accepts(GrammarKind::kRegex, "a{3,}b", "aaaab"));
  EXPECT_TRUE(Accepts(GrammarKind::kRegex, "\\{999\\}", "{999}"));
  EXPECT_TRUE(Accepts(GrammarKind::kEbnf, "root ::= [a-z]{2,300}", std::string(300, 'q')));
}

TEST(JsonSchema, FollowsReferences) {
  const auto accepts = [](const char* schema, const std::string& text) {
    return Accepts(GrammarKind::kJsonSchema, schema, text);
  };
  const char* node = R"({"$ref":"#/$defs/Node","$defs":{"Node":{"anyOf":[{"type":"string"},
      {"type":"array","items":{"$ref":"#/$defs/Node"}}]}}})";
  EXPECT_TRUE(accepts(node, R"(["a",["b",[]]])"));
  EXPECT_FALSE(accepts(node, R"(["a",1])"));
  const char* branch = R"({"type":"object","properties":{"x":{"anyOf":[{"enum":["a"]},
      {"type":"null"}]},"y":{"$ref":"#/properties/x/anyOf/0"}},"required":["x","y"]})";
  EXPECT_TRUE(accepts(branch, R"({"x":null,"y":"a"})"));
  EXPECT_FALSE(accepts(branch, R"({"x":null,"y":null})"));
  EXPECT_TRUE(accepts(R"({"type":"array","items":{"$ref":"#"}})", "[[],[[]]]"));
  const char* escaped =
      R"({"type":"array","items":{"$ref":"#/$defs/a~1b%25"},"$defs":{"a/b%":{"type":"null"}}})";
  EXPECT_TRUE(accepts(escaped, "[null]"));
  EXPECT_FALSE(accepts(escaped, "[1]"));
}

TEST(JsonSchema, RefusesReferencesThatDescribeNothing) {
  EXPECT_THAT(SchemaRefusal(R"({"$ref":"#/$defs/Missing"})"), HasSubstr("#/$defs/Missing"));
  EXPECT_THAT(SchemaRefusal(R"({"$ref":"https://example.test/s.json"})"),
              HasSubstr("https://example.test/s.json"));
  EXPECT_THAT(SchemaRefusal(R"({"$ref":"#"})"), HasSubstr("comes back to itself"));
  EXPECT_THAT(SchemaRefusal(R"({"$ref":"#/$defs/A","$defs":{"A":{"anyOf":[{"$ref":"#/$defs/B"}]},
      "B":{"$ref":"#/$defs/A"}}})"),
              HasSubstr("comes back to itself"));
}

TEST(JsonSchema, RefusesByNameAndPlaceWhatItCannotEnforce) {
  EXPECT_THAT(SchemaRefusal("5"), HasSubstr("a schema is an object or a boolean"));
  EXPECT_THAT(SchemaRefusal("{"), HasSubstr("no JSON"));
  EXPECT_THAT(SchemaRefusal(R"({"type":"strng"})"), HasSubstr("strng"));
  EXPECT_THAT(SchemaRefusal(R"({"properties":[]})"), HasSubstr("properties must be an object"));
  EXPECT_THAT(
      SchemaRefusal(R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}})"),
      HasSubstr("at /properties/a: uniqueItems is not supported"));
  EXPECT_THAT(SchemaRefusal(R"({"not":{"type":"null"}})"), HasSubstr("not is not supported"));
  EXPECT_THAT(SchemaRefusal(R"({"minimum":3})"), HasSubstr("minimum needs a type"));
  EXPECT_THAT(SchemaRefusal(R"({"type":"object","anyOf":[{"required":["a"]}]})"),
              HasSubstr("type beside anyOf"));
  EXPECT_THAT(SchemaRefusal(R"({"type":"number","multipleOf":0.5})"), HasSubstr("multipleOf"));
  EXPECT_THAT(SchemaRefusal(R"({"type":"array","minItems":5,"maxItems":3})"),
              HasSubstr("minItems"));
  EXPECT_THAT(SchemaRefusal(R"({"type":"string","pattern":"^[a-z]+$","maxLength":3})"),
              HasSubstr("maxLength"));
  EXPECT_THAT(SchemaRefusal(R"({"type":"string","format":"date","maxLength":4})"),
              HasSubstr("maxLength"));
  EXPECT_THAT(SchemaRefusal(R"({"type":"integer","exclusiveMinimum":5,"exclusiveMaximum":6})"),
              HasSubstr("no integer lies"));
  EXPECT_THAT(SchemaRefusal(R"({"type":"integer","enum":["a"]})"), HasSubstr("not of the type"));
  EXPECT_THAT(SchemaRefusal("false"), HasSubstr("field"));
  EXPECT_THAT(SchemaRefusal(R"({"oneOf":[{"type":"string"},{"type":"string","minLength":1}]})"),
              HasSubstr("oneOf"));
}

TEST(JsonSchema, RefusesDeepNestingWithoutFallingOver) {
  std::string deep, close;
  for (int i = 0; i < 500; ++i) {
    deep += R"({"type":"array","items":)";
    close += "}";
  }
  EXPECT_THAT(SchemaRefusal(deep + "{}" + close), HasSubstr("deep"));
  EXPECT_THAT(SchemaRefusal(std::string(20000, '[') + std::string(20000, ']')), HasSubstr("JSON"));
}

TEST(Regex, RefusesWhatIsNoExpression) {
  for (const char* regex : {"[", "(", "[z-a]", "(?<=x)y", "a**", "\\1", ")"}) {
    EXPECT_NE(Refusal(GrammarKind::kRegex, regex), "") << regex;
  }
  EXPECT_THAT(Refusal(GrammarKind::kRegex, std::string(5000, '(') + std::string(5000, ')')),
              HasSubstr("nests deeper"));
  EXPECT_NE(SchemaRefusal(R"({"type":"string","pattern":"("})"), "");
  EXPECT_NE(SchemaRefusal(R"({"type":"string","pattern":"^+[a-z]$"})"), "");
}

TEST(Regex, MatchesTheWholeAnswer) {
  EXPECT_TRUE(Accepts(GrammarKind::kRegex, "^[a-c]{2,3}$", "abc"));
  EXPECT_FALSE(Accepts(GrammarKind::kRegex, "[a-c]{2,3}", "a"));
  EXPECT_TRUE(Accepts(GrammarKind::kRegex, R"(\d+\/\d+\-x\.y)", "12/3-x.y"));
}

TEST(Ebnf, RefusesBrokenRules) {
  EXPECT_NE(Refusal(GrammarKind::kEbnf, "rout::="), "");
  EXPECT_THAT(Refusal(GrammarKind::kEbnf, "root ::= undefined_rule"), HasSubstr("undefined_rule"));
  EXPECT_NE(Refusal(GrammarKind::kEbnf, "root ::= root \"a\""), "");
  EXPECT_TRUE(Accepts(GrammarKind::kEbnf, "root ::= \"a\" root | \"b\"", "aab"));
}

TEST(StructuralTag, ConstrainsWhatFollowsATrigger) {
  const char* tag = R"({"type":"structural_tag","structures":[{"begin":"<f>",
      "schema":{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]},
      "end":"</f>"}],"triggers":["<f>"]})";
  const auto accepts = [&](const char* text) {
    return Accepts(GrammarKind::kStructuralTag, tag, text);
  };
  EXPECT_TRUE(accepts("free text"));
  EXPECT_TRUE(accepts("see <f>{\"x\":1}</f> and more"));
  EXPECT_FALSE(accepts("see <f>{\"y\":1}</f>"));
  EXPECT_NE(Refusal(GrammarKind::kStructuralTag, R"({"type":"structural_tag"})"), "");
  EXPECT_NE(Refusal(GrammarKind::kStructuralTag,
                    R"({"type":"structural_tag","format":{"type":"json_schema",
                    "json_schema":{"not":{}}}})"),
            "");
}

}  // namespace
}  // namespace hayate::grammar
