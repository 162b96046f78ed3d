#include "http/detail/chunked.h"

#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"

namespace hayate::http {
namespace {

struct Decoded {
  ChunkedDecoder::State state;
  std::string body;
  std::string rest;
};

// Feeds `text` in pieces of `step` bytes.
Decoded Decode(std::string_view text, size_t step) {
  ChunkedDecoder decoder;
  Decoded out;
  size_t fed = 0;
  while (fed < text.size() && decoder.state() == ChunkedDecoder::State::kNeedMore) {
    std::string_view piece = text.substr(fed, step);
    fed += piece.size();
    while (!piece.empty() && decoder.state() == ChunkedDecoder::State::kNeedMore) {
      out.body += decoder.Take(piece);
    }
    fed -= piece.size();
  }
  out.state = decoder.state();
  out.rest = text.substr(fed);
  return out;
}

TEST(Chunked, DecodesWhateverThePieces) {
  const std::string text = "5;name=\"v\"\r\nhello\r\n00A\r\n\r\n 1234567\r\n0\r\nX: y\r\n\r\nGET";
  for (size_t step = 1; step <= text.size(); ++step) {
    const Decoded decoded = Decode(text, step);
    EXPECT_EQ(decoded.state, ChunkedDecoder::State::kDone);
    EXPECT_EQ(decoded.body, "hello\r\n 1234567");
    EXPECT_EQ(decoded.rest, "GET");
  }
}

TEST(Chunked, RefusesMalformedCoding) {
  for (const char* text :
       {"\r\n", "g\r\n", " 5\r\nhello", "-5\r\n", "0x5\r\n", "5 \r\nhello\r\n", "5\nhello\r\n",
        "5\rhello", "5\r\nhelloo\r\n", "5\r\nhello\n", "5\r\nhello\r5", "fffffffffffffffff\r\n",
        "5;a\x01\r\n", "0\r\nX: \x02\r\n\r\n"}) {
    EXPECT_EQ(Decode(text, 100).state, ChunkedDecoder::State::kMalformed) << text;
  }
}

TEST(Chunked, BoundsExtensionsAndTrailers) {
  EXPECT_EQ(Decode("5;" + std::string(1000, 'a'), 64).state, ChunkedDecoder::State::kMalformed);
  std::string trailers = "0\r\n";
  for (int i = 0; i < 2000; ++i) trailers += "abc: d\r\n";
  EXPECT_EQ(Decode(trailers, 64).state, ChunkedDecoder::State::kMalformed);
}

TEST(Chunked, EncodedTextDecodesToItself) {
  Rng rng(1);
  std::string encoded;
  std::string expected;
  for (int i = 0; i < 200; ++i) {
    const std::string piece(rng.Below(70), static_cast<char>(rng.Below(256)));
    AppendChunk(encoded, piece);
    expected += piece;
  }
  encoded += kLastChunk;
  const Decoded decoded = Decode(encoded, 7);
  EXPECT_EQ(decoded.state, ChunkedDecoder::State::kDone);
  EXPECT_EQ(decoded.body, expected);
}

}  // namespace
}  // namespace hayate::http
