// /v1/embeddings on the wire. Never streamed.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "api/formatter.h"
#include "base/json_writer.h"

namespace hayate::api {
namespace {

void AppendBase64(std::string& out, std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t n = 0; n < 3; ++n) {
      group = group << 8 | (n < count ? static_cast<unsigned char>(bytes[i + n]) : 0u);
    }
    for (size_t n = 0; n < 4; ++n) {
      out.push_back(n <= count ? kDigits[group >> (18 - 6 * n) & 63] : '=');
    }
  }
}

// Pooled to unit length; a mean's divisor drops out. Cut first: a shorter one has unit length too.
std::vector<float> UnitVector(std::vector<float> pooled, std::optional<int64_t> dimensions) {
  if (dimensions) pooled.resize(std::min(pooled.size(), static_cast<size_t>(*dimensions)));
  double sum = 0.0;
  for (const float x : pooled) sum += double{x} * x;
  const double scale = sum > 0.0 ? 1.0 / std::sqrt(sum) : 0.0;
  for (float& x : pooled) x = static_cast<float>(x * scale);
  return pooled;
}

class EmbeddingFormatter final : public Formatter {
 public:
  explicit EmbeddingFormatter(const AnswerHead& head) : head_(head) {}

  void Open(const ChoiceView&, std::string&) override {}
  void Delta(const ChoiceView&, const ChoiceDelta&, const Usage&, std::string&) override {}
  void Close(const Usage&, std::string&) override {}
  void Gather(const ChoiceView&, ChoiceDelta) override {}

  std::string Render(const std::vector<ChoiceView>& views, const Usage& usage) override {
    std::string out;
    JsonWriter json(out);
    json.BeginObject();
    json.Field("object", "list");
    json.Key("data");
    json.BeginArray();
    for (const ChoiceView& view : views) {
      json.BeginObject();
      json.Field("object", "embedding");
      json.Field("index", static_cast<int64_t>(view.index));
      json.Key("embedding");
      WriteVector(json, UnitVector(view.choice->hidden(), head_.spec->embedding->dimensions));
      json.EndObject();
    }
    json.EndArray();
    json.Field("model", head_.model->name);
    json.Key("usage");
    json.BeginObject();
    json.Field("prompt_tokens", usage.prompt_tokens);
    json.Field("total_tokens", usage.prompt_tokens);
    json.EndObject();
    json.EndObject();
    return out;
  }

 private:
  void WriteVector(JsonWriter& json, const std::vector<float>& values) const {
    if (!head_.spec->embedding->base64) {
      json.BeginArray();
      for (const float value : values) json.Float(value);
      json.EndArray();
      return;
    }
    static_assert(std::endian::native == std::endian::little);  // as the wire has them
    std::string bytes(values.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    std::string text;
    AppendBase64(text, bytes);
    json.String(text);
  }

  AnswerHead head_;
};

}  // namespace

std::unique_ptr<Formatter> MakeEmbeddingFormatter(const AnswerHead& head) {
  return std::make_unique<EmbeddingFormatter>(head);
}

}  // namespace hayate::api
