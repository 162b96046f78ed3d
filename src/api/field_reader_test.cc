#include "api/field_reader.h"

#include <gtest/gtest.h>

#include "text/detokenizer.h"

namespace hayate::api {
namespace {

class FieldReaderTest : public ::testing::Test {
 protected:
  FieldReader Read(std::string_view json, std::string prefix = "") {
    auto object = ParseBody(parser_, json);
    CHECK(object.ok()) << object.status().ToString();
    return FieldReader(*object, std::move(prefix));
  }
  simdjson::dom::parser parser_;
};

TEST_F(FieldReaderTest, NullAndMissingFieldsGiveNothing) {
  FieldReader fields = Read(R"({"a":null})");
  EXPECT_FALSE(fields.Int("a", 0, 9));
  EXPECT_FALSE(fields.Number("a", 0, 1));
  EXPECT_FALSE(fields.Bool("b"));
  EXPECT_FALSE(fields.String("b"));
  EXPECT_TRUE(fields.Strings("a", 4).empty());
  EXPECT_TRUE(fields.status().ok());
}

TEST_F(FieldReaderTest, IntegersMayBeWrittenAsWholeFloats) {
  FieldReader fields = Read(R"({"a":5.0,"b":1e3,"c":-0.0})");
  EXPECT_EQ(fields.Int("a", 0, 9), 5);
  EXPECT_EQ(fields.Int("b", 0, 1000), 1000);
  EXPECT_EQ(fields.Int("c", 0, 9), 0);
  EXPECT_TRUE(fields.status().ok());
}

TEST_F(FieldReaderTest, WrongTypesAndRangesNameTheFieldAndTheValue) {
  const struct {
    const char* json;
    const char* says;
  } cases[] = {{R"({"x":1.5})", "x: must be an integer"},
               {R"({"x":true})", "x: must be an integer"},
               {R"({"x":"1"})", "x: must be an integer"},
               {R"({"x":1e300})", "x: must be an integer"},
               {R"({"x":9223372036854775808})", "x: must be an integer"},
               {R"({"x":-1})", "x: is -1, must be between 0 and 9"},
               {R"({"x":10})", "x: is 10, must be between 0 and 9"}};
  for (const auto& c : cases) {
    FieldReader fields = Read(c.json);
    EXPECT_FALSE(fields.Int("x", 0, 9)) << c.json;
    EXPECT_EQ(fields.status().message(), c.says);
    EXPECT_EQ(fields.status().param(), "x");
  }
}

TEST_F(FieldReaderTest, TheFirstErrorStaysAndCarriesThePrefix) {
  FieldReader fields = Read(R"({"p":2,"q":"x","s":["a",1]})", "sampling_params.");
  EXPECT_FALSE(fields.Number("p", 0, 1));
  EXPECT_FALSE(fields.Bool("q"));
  EXPECT_TRUE(fields.Strings("s", 4).empty());
  EXPECT_EQ(fields.status().param(), "sampling_params.p");
}

TEST_F(FieldReaderTest, StringsComeAloneOrInBoundedLists) {
  FieldReader fields = Read(R"({"one":"a","two":["a","b"],"none":[]})");
  EXPECT_EQ(fields.Strings("one", 1), std::vector<std::string>({"a"}));
  EXPECT_EQ(fields.Strings("two", 2), std::vector<std::string>({"a", "b"}));
  EXPECT_TRUE(fields.Strings("none", 1).empty());
  EXPECT_TRUE(fields.status().ok());
  EXPECT_TRUE(fields.Strings("two", 1).empty());
  EXPECT_EQ(fields.status().param(), "two");
}

TEST_F(FieldReaderTest, TokenIdsLieInsideTheVocabulary) {
  FieldReader good = Read(R"({"ids":[0,9]})");
  EXPECT_EQ(good.TokenIds("ids", 10), std::vector<int32_t>({0, 9}));
  for (const char* json : {R"({"ids":[10]})", R"({"ids":[-1]})", R"({"ids":[1.5]})",
                           R"({"ids":[1099511627776]})", R"({"ids":["1"]})"}) {
    FieldReader bad = Read(json);
    EXPECT_TRUE(bad.TokenIds("ids", 10).empty());
    EXPECT_EQ(bad.status().param(), "ids") << json;
  }
}

TEST_F(FieldReaderTest, FieldsNobodyAskedForAreListed) {
  FieldReader fields = Read(R"({"a":1,"b":2,"c":3,"d":4})");
  fields.Int("a", 0, 9);
  fields.Ignore("c");
  EXPECT_EQ(fields.Unread(), std::vector<std::string>({"b", "d"}));
}

TEST(ParseBody, RefusesWhatIsNoObject) {
  simdjson::dom::parser parser;
  const std::string deep = std::string(20000, '[') + std::string(20000, ']');
  for (const std::string& body :
       {std::string(), std::string("["), std::string("[]"), std::string("3"), std::string("{} {}"),
        std::string("{\"a\":\"\xff\"}"), std::string("{\"a\":\"\xed\xa0\xbd\"}"), deep,
        "{\"a\":" + deep + "}"}) {
    EXPECT_EQ(ParseBody(parser, body).status().code(), ErrorCode::kInvalidArgument);
  }
}

TEST(Shown, CutsLongTextsBetweenCharacters) {
  EXPECT_EQ(Shown("short"), "short");
  for (size_t shift = 0; shift < 4; ++shift) {
    std::string text(shift, 'a');
    for (int i = 0; i < 100; ++i) text += "🦙";
    const std::string shown = Shown(text);
    EXPECT_LE(shown.size(), kMaxShown + 3);
    std::string repaired;
    text::Utf8Repairer repairer;
    repairer.Push(shown, repaired);
    repairer.Flush(repaired);
    EXPECT_EQ(repaired, shown);  // nothing had to be repaired
  }
}

}  // namespace
}  // namespace hayate::api
