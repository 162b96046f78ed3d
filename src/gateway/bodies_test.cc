// What is found in bodies and put into them, without parsing them.

#include <gtest/gtest.h>

#include "base/rng.h"
#include "gateway/event_boundary.h"
#include "gateway/pd_body.h"
#include "text/body_scan.h"

namespace hayate::gateway {
namespace {

using text::BodyFields;
using text::FindStringEnd;
using text::ScanBody;

TEST(BodyScan, FindsTheFieldsOfChat) {
  const std::string body =
      R"( {"messages": [{"role":"user","content":"a \"model\": \\"}], "model" : "M", )"
      R"("stream":true,"max_completion_tokens": 7,"n":2,"tools":[{}],"x":{"model":"no"}} )";
  const BodyFields fields = ScanBody(body);
  EXPECT_TRUE(fields.complete);
  EXPECT_EQ(fields.model, "M");
  EXPECT_TRUE(fields.stream);
  EXPECT_EQ(fields.max_tokens, 7);
  EXPECT_EQ(fields.n, 2);
  EXPECT_EQ(fields.batch, 0);
  EXPECT_TRUE(fields.prompt.starts_with("[{\"role\""));
  EXPECT_TRUE(fields.prompt.ends_with("}]"));
  EXPECT_EQ(body[fields.insert_at - 1], '{');
}

TEST(BodyScan, FindsTheFieldsOfGenerateAndCountsBatches) {
  EXPECT_EQ(ScanBody(R"({"text":["a","b","c"]})").batch, 3);
  EXPECT_EQ(ScanBody(R"({"input_ids":[[1,2],[3]]})").batch, 2);
  EXPECT_EQ(ScanBody(R"({"input_ids":[1,2,3]})").batch, 0);
  const BodyFields fields = ScanBody(
      R"({"text":"hi","sampling_params":{"max_new_tokens":9,"n":3},"return_logprob":true})");
  EXPECT_EQ(fields.prompt, "\"hi\"");
  EXPECT_EQ(fields.max_tokens, 9);
  EXPECT_EQ(fields.n, 3);
  EXPECT_TRUE(fields.return_logprob);
}

TEST(BodyScan, ABeginningGivesWhatItHolds) {
  const std::string body = R"({"model":"M","prompt":")" + std::string(5000, 'x') + "\"}";
  const BodyFields fields = ScanBody(std::string_view(body).substr(0, 3000));
  EXPECT_FALSE(fields.complete);
  EXPECT_EQ(fields.model, "M");
  EXPECT_GT(fields.prompt.size(), 2900u);
}

TEST(BodyScan, SurvivesAnything) {
  for (const char* text : {"", "{", "[]", "{\"", "{\"a", "{\"a\"", "{\"a\":", "{\"a\":}", "{,}",
                           "{\"a\":1", "{\"a\":1,", "{\"a\":[", "{\"a\":[}", "{\"a\":\"\\", "nul",
                           "{\"model\":1}", "{\"model\":\"\\u00", "{\"a\":1}}", "{}{"}) {
    const BodyFields fields = ScanBody(text);
    EXPECT_TRUE(fields.model.empty() || text[2] == 'm') << text;
  }
  EXPECT_TRUE(ScanBody("{}").complete);
  EXPECT_TRUE(ScanBody("{}").empty);
  EXPECT_FALSE(ScanBody("{}x").complete);
}

TEST(BodyScan, StringEndsAgreeWithAPlainLoop) {
  Rng rng(3);
  for (int round = 0; round < 2000; ++round) {
    std::string text(rng.Below(300), 'a');
    for (char& c : text) {
      const uint32_t roll = rng.Below(40);
      if (roll == 0) c = '"';
      if (roll == 1) c = '\\';
    }
    const size_t begin = rng.Below(static_cast<uint32_t>(text.size() + 1));
    size_t expected = begin;
    while (expected < text.size() && text[expected] != '"')
      expected += text[expected] == '\\' ? 2 : 1;
    EXPECT_EQ(FindStringEnd(text, begin), std::min(expected, text.size()));
  }
}

TEST(EventBoundary, PassesWholeEventsAndHoldsTheTail) {
  EventBoundary boundary;
  std::string out;
  boundary.Take("data: 1\n\ndata: 2", out);
  EXPECT_EQ(out, "data: 1\n\n");
  EXPECT_EQ(boundary.Closing(), "");
  boundary.Take("2\n", out);
  EXPECT_EQ(out, "data: 1\n\n");
  boundary.Take("\n", out);
  EXPECT_EQ(out, "data: 1\n\ndata: 22\n\n");
  boundary.Take("data: 3\r\n\r\n: c", out);
  EXPECT_TRUE(out.ends_with("3\r\n\r\n"));
  EXPECT_EQ(boundary.TakeHeld(), ": c");
}

TEST(EventBoundary, LosesNothingHoweverTheBytesAreCut) {
  std::string stream;
  for (int i = 0; i < 200; ++i) {
    stream += "data: " + std::string(i % 17, 'x') + (i % 3 == 0 ? "\r\n\r\n" : "\n\n");
  }
  Rng rng(5);
  for (int round = 0; round < 50; ++round) {
    EventBoundary boundary;
    std::string out;
    for (size_t at = 0; at < stream.size();) {
      const size_t size = std::min<size_t>(1 + rng.Below(40), stream.size() - at);
      boundary.Take(std::string_view(stream).substr(at, size), out);
      EXPECT_EQ(LastEventEnd(out), out.size());
      at += size;
    }
    EXPECT_EQ(out + boundary.TakeHeld(), stream);
  }
}

TEST(EventBoundary, AnOversizedEventPassesInPieces) {
  EventBoundary boundary;
  std::string out;
  for (int i = 0; i < 10; ++i) boundary.Take(std::string(100'000, 'x'), out);
  EXPECT_GT(out.size(), 500'000u);
  EXPECT_EQ(boundary.Closing(), "\n\n");
}

TEST(PdBody, SplicesOneRoomOrArrays) {
  const std::vector<uint64_t> one = {9'223'372'036'854'775'807u};
  EXPECT_EQ(RendezvousSplice({.host = "10.0.0.1", .port = 8998}, one, false, false),
            R"("bootstrap_host":"10.0.0.1","bootstrap_port":8998,)"
            R"("bootstrap_room":9223372036854775807,)");
  const std::vector<uint64_t> two = {1, 2};
  EXPECT_EQ(RendezvousSplice({.host = "[::1]", .port = 0}, two, true, true),
            R"("bootstrap_host":["[::1]","[::1]"],"bootstrap_port":[null,null],)"
            R"("bootstrap_room":[1,2])");
  EXPECT_EQ(RoomsFor(ScanBody(R"({"text":["a","b"]})"), false), 2u);
  EXPECT_EQ(RoomsFor(ScanBody(R"({"messages":[],"n":3})"), true), 3u);
  EXPECT_EQ(RoomsFor(ScanBody(R"({"text":"a","n":3})"), false), 1u);
}

TEST(PdBody, MergesThePromptsLogprobs) {
  const std::string prefill =
      R"({"text":"x","meta_info":{"input_token_logprobs":[[-0.5,1,"a]"],[-0.1,2,null]]}})";
  const PromptLogprobs logprobs(prefill);
  std::string decode = R"({"meta_info":{"input_token_logprobs":[[-0.2,3,null]],"id":1}})";
  logprobs.MergeInto(decode);
  EXPECT_EQ(decode, R"({"meta_info":{"input_token_logprobs":[[-0.5,1,"a]"],[-0.1,2,null],)"
                    R"([-0.2,3,null]],"id":1}})");
  std::string none = R"({"text":"\"input_token_logprobs\":[]"})";
  logprobs.MergeInto(none);
  EXPECT_EQ(none, R"({"text":"\"input_token_logprobs\":[]"})");
  EXPECT_TRUE(PromptLogprobs("{}").empty());
  EXPECT_TRUE(PromptLogprobs(R"({"input_token_logprobs":[[1)").empty());  // cut off
}

TEST(PromptLogprobs, EachSequenceOfABatchGetsItsOwn) {
  const PromptLogprobs logprobs(
      R"([{"meta_info":{"input_token_logprobs":[1]}},{"meta_info":{"input_token_logprobs":[]}},)"
      R"({"meta_info":{"input_token_logprobs":[3,33]}}])");
  std::string decode =
      R"([{"input_token_logprobs": [7]},{"input_token_logprobs":[8]},{"input_token_logprobs":[]}])";
  logprobs.MergeInto(decode);
  EXPECT_EQ(decode, R"([{"input_token_logprobs": [1,7]},{"input_token_logprobs":[8]},)"
                    R"({"input_token_logprobs":[3,33]}])");
}

TEST(PromptLogprobs, StandInEveryEventOfAStreamByItsIndex) {
  const PromptLogprobs logprobs(
      "data: {\"index\":1,\"meta_info\":{\"input_token_logprobs\":[5]}}\n\n"
      "data: {\"index\":0,\"meta_info\":{\"input_token_logprobs\":[4]}}\n\n"
      "data: {\"index\":1,\"meta_info\":{\"input_token_logprobs\":[5,6]}}\n\ndata: [DONE]\n\n");
  std::string out;
  logprobs.MergeEvents(
      "data: {\"meta_info\":{\"input_token_logprobs\":[9]},\"index\":1}\n\n"
      "data: {\"meta_info\":{\"input_token_logprobs\":[]}}\r\n\r\n"
      ": \"input_token_logprobs\":[]\n"
      "data: {\"meta_info\":{\"input_token_logprobs\":[]},\"index\":2}\n\ndata: [DONE]\n\n",
      out);
  EXPECT_EQ(out,
            "data: {\"meta_info\":{\"input_token_logprobs\":[5,6,9]},\"index\":1}\n\n"
            "data: {\"meta_info\":{\"input_token_logprobs\":[4]}}\r\n\r\n"
            ": \"input_token_logprobs\":[]\n"
            "data: {\"meta_info\":{\"input_token_logprobs\":[]},\"index\":2}\n\ndata: [DONE]\n\n");
}

}  // namespace
}  // namespace hayate::gateway
