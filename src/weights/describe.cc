#include "weights/describe.h"

#include <utility>

#include "base/error.h"
#include "base/json_writer.h"
#include "weights/detail/utf8_cut.h"

namespace hayate::weights {
namespace {

constexpr size_t kMaxValueChars = 60;
constexpr size_t kMaxTemplateChars = 160;

// The beginning of a text, on one line.
std::string Shorten(std::string_view text, size_t max_chars) {
  const std::string_view head = detail::CutUtf8(text, max_chars);
  std::string line;
  for (const char c : head) {
    if (c == '\n') {
      line += "\\n";
    } else {
      line += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return head.size() < text.size() ? line + "…" : line;
}

std::string DescribeTokenizer(const Checkpoint& checkpoint) {
  const Result<TokenizerSource> source = checkpoint.Tokenizer();
  if (!source.ok()) return "none (" + source.status().message() + ")";
  if (const auto* gguf = std::get_if<GgufTokenizer>(&*source)) {
    return fmt::format("{}{}, {} tokens, {} merges", gguf->model,
                       gguf->pre.empty() ? "" : fmt::format(" ({})", gguf->pre),
                       gguf->tokens.size(), gguf->merges.size());
  }
  return fmt::format("tokenizer.json, {} bytes",
                     std::get<HfTokenizer>(*source).tokenizer_json.size());
}

std::string DescribeSpecialTokens(const SpecialTokens& special) {
  std::string text;
  const auto add = [&](std::string_view name, std::optional<int32_t> id) {
    if (id) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, *id);
  };
  add("bos", special.bos);
  for (const int32_t id : special.eos) add("eos", id);
  add("pad", special.pad);
  add("unk", special.unk);
  if (special.add_bos) text += *special.add_bos ? ", adds bos" : ", adds no bos";
  return text.empty() ? "none" : text;
}

// "98.4 MB": decimal units, as files are sold.
std::string Megabytes(uint64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

void WriteId(JsonWriter& json, std::string_view key, std::optional<int32_t> id) {
  if (id) json.Field(key, *id);
}

void WriteTensors(JsonWriter& json, const Checkpoint& checkpoint) {
  json.Key("tensors");
  json.BeginArray();
  for (const auto& [name, info] : checkpoint.tensors()) {
    json.BeginObject();
    json.Field("name", name);
    json.Field("dtype", Info(info.dtype).name);
    json.Key("shape");
    json.BeginArray();
    for (int axis = 0; axis < info.shape.rank(); ++axis) json.Int(info.shape[axis]);
    json.EndArray();
    json.Field("file_index", info.file_index);
    json.Field("offset", info.offset);
    json.Field("bytes", info.bytes);
    json.EndObject();
  }
  json.EndArray();
}

void WritePairs(JsonWriter& json, std::string_view key,
                const std::vector<std::pair<std::string, std::string>>& pairs) {
  json.Key(key);
  json.BeginObject();
  for (const auto& [name, text] : pairs) json.Field(name, text);
  json.EndObject();
}

void WriteSpecialTokens(JsonWriter& json, const SpecialTokens& special) {
  json.Key("special_tokens");
  json.BeginObject();
  WriteId(json, "bos", special.bos);
  WriteId(json, "pad", special.pad);
  WriteId(json, "unk", special.unk);
  json.Key("eos");
  json.BeginArray();
  for (const int32_t id : special.eos) json.Int(id);
  json.EndArray();
  if (special.add_bos) json.Field("add_bos", *special.add_bos);
  if (special.add_eos) json.Field("add_eos", *special.add_eos);
  json.EndObject();
}

}  // namespace

int64_t NumParameters(std::string_view name, const TensorInfo& info) {
  for (const std::string_view scale : {".scale", "_scale", "_scales", "_scale_inv"}) {
    if (name.ends_with(scale)) return 0;
  }
  if (info.dtype == DType::kI32 || info.dtype == DType::kI64) return 0;
  const bool packed =
      info.dtype == DType::kI8 || (info.dtype == DType::kU8 && name.ends_with("_blocks"));
  return info.shape.num_elements() * (packed ? 2 : 1);
}

Result<CheckpointSummary> Describe(const Checkpoint& checkpoint) {
  CheckpointSummary summary;
  summary.path = checkpoint.path().string();
  summary.format = FormatName(checkpoint.format());
  summary.architecture = checkpoint.architecture();
  summary.files.assign(checkpoint.file_paths().begin(), checkpoint.file_paths().end());
  for (const auto& [name, info] : checkpoint.tensors()) {
    DTypeUsage& usage = summary.dtypes[std::string(Info(info.dtype).name)];
    ++usage.num_tensors;
    usage.num_elements += info.shape.num_elements();
    usage.bytes += info.bytes;
    summary.num_parameters += NumParameters(name, info);
    summary.tensor_bytes += info.bytes;
  }
  for (const auto& [key, value] : checkpoint.metadata().values()) {
    summary.metadata.emplace_back(key, Summarize(value, kMaxValueChars));
  }
  summary.tokenizer = DescribeTokenizer(checkpoint);
  ASSIGN_OR_RETURN(const std::vector<ChatTemplateSource> templates, checkpoint.ChatTemplates());
  for (const ChatTemplateSource& source : templates) {
    summary.templates.emplace_back(source.name, Shorten(source.text, kMaxTemplateChars));
  }
  ASSIGN_OR_RETURN(summary.special_tokens, checkpoint.ReadSpecialTokens());
  return summary;
}

std::string ToText(const CheckpointSummary& summary) {
  std::string text;
  const auto line = [&](std::string_view name, std::string_view value) {
    text += fmt::format("{:<15} {}\n", name, value);
  };
  line("path", summary.path);
  line("format", fmt::format("{}, {} file(s)", summary.format, summary.files.size()));
  line("architecture", summary.architecture);
  line("parameters", fmt::format("{:.1f} M", static_cast<double>(summary.num_parameters) / 1e6));
  line("weights", Megabytes(summary.tensor_bytes));
  for (const auto& [dtype, usage] : summary.dtypes) {
    line("  " + dtype,
         fmt::format("{} tensors, {:.1f} M elements, {}", usage.num_tensors,
                     static_cast<double>(usage.num_elements) / 1e6, Megabytes(usage.bytes)));
  }
  line("tokenizer", summary.tokenizer);
  line("special tokens", DescribeSpecialTokens(summary.special_tokens));
  for (const auto& [name, head] : summary.templates) line("template " + name, head);
  text += "metadata\n";
  for (const auto& [key, value] : summary.metadata) text += fmt::format("  {} = {}\n", key, value);
  return text;
}

std::string ToJson(const CheckpointSummary& summary, const Checkpoint& checkpoint) {
  std::string text;
  JsonWriter json(text);
  json.BeginObject();
  json.Field("path", summary.path);
  json.Field("format", summary.format);
  json.Field("architecture", summary.architecture);
  json.Key("files");
  json.BeginArray();
  for (const std::string& file : summary.files) json.String(file);
  json.EndArray();
  json.Field("num_parameters", summary.num_parameters);
  json.Field("tensor_bytes", summary.tensor_bytes);
  json.Key("dtypes");
  json.BeginObject();
  for (const auto& [dtype, usage] : summary.dtypes) {
    json.Key(dtype);
    json.BeginObject();
    json.Field("num_tensors", usage.num_tensors);
    json.Field("num_elements", usage.num_elements);
    json.Field("bytes", usage.bytes);
    json.EndObject();
  }
  json.EndObject();
  json.Field("tokenizer", summary.tokenizer);
  WriteSpecialTokens(json, summary.special_tokens);
  WritePairs(json, "templates", summary.templates);
  WritePairs(json, "metadata", summary.metadata);
  WriteTensors(json, checkpoint);
  json.EndObject();
  return text;
}

}  // namespace hayate::weights
