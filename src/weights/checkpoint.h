#pragma once
// A model on disk behind one face: a GGUF file, a safetensors file or a model directory, or no
// weights at all (dummy). Opening reads headers and indexes only; tensor bytes are mapped and read
// when touched.
//
// Everything handed out as a view or a span lives as long as the Checkpoint. Immutable once made,
// so any thread may read it; moving it keeps the views valid.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "tensor/tensor_view.h"
#include "weights/dummy.h"
#include "weights/metadata.h"
#include "weights/shard_plan.h"
#include "weights/tensor_index.h"

namespace hayate::weights {

enum class CheckpointFormat : uint8_t { kGguf, kSafetensors };
std::string_view FormatName(CheckpointFormat format);

// A tokenizer as GGUF metadata carries it.
struct GgufTokenizer {
  std::string_view model;                    // "gpt2", "llama"
  std::string_view pre;                      // "smollm", "qwen2"; empty when the file does not say
  std::span<const std::string_view> tokens;  // by id
  std::span<const std::string_view> merges;  // "left right", by rank
  std::vector<float> scores;                 // by id; empty for BPE
  std::vector<int32_t>
      token_types;  // by id: 1 normal, 2 unknown, 3 control, 4 user, 5 unused, 6 byte
};

// A tokenizer as a model directory carries it: the files' texts.
struct HfTokenizer {
  std::string tokenizer_json;
  std::string tokenizer_config_json;  // empty when there is none
};

using TokenizerSource = std::variant<GgufTokenizer, HfTokenizer>;

struct SpecialTokens {
  std::optional<int32_t> bos, pad, unk;
  std::vector<int32_t> eos;  // every id that ends a turn or the text; the first is the main one
  std::optional<bool> add_bos, add_eos;
};

struct ChatTemplateSource {
  std::string name;  // "default", "tool_use"
  std::string text;  // Jinja
};

class Checkpoint {
 public:
  // `path`: a .gguf file, a .safetensors file (its directory's config.json is read), or a directory
  // with config.json and *.safetensors (with model.safetensors.index.json when sharded), or with
  // one .gguf. Errors name file, tensor and offset: kNotFound, kIo, kDataLoss, kUnsupported.
  static Result<Checkpoint> Open(const std::filesystem::path& path);
  // The same without tensors: for dummy weights, and for roles that need only config and tokenizer.
  static Result<Checkpoint> OpenConfig(const std::filesystem::path& path);

  Checkpoint(Checkpoint&&) noexcept = default;
  Checkpoint& operator=(Checkpoint&&) noexcept = default;

  CheckpointFormat format() const { return format_; }
  // GGUF: general.architecture ("llama"). Directory: architectures[0] ("LlamaForCausalLM"), else
  // model_type.
  const std::string& architecture() const { return architecture_; }
  // GGUF key values, or config.json flattened.
  const Metadata& metadata() const { return metadata_; }
  // generation_config.json flattened; empty when there is none.
  const Metadata& generation_config() const { return generation_config_; }
  // The text of config.json; empty for GGUF.
  const std::string& config_json() const { return config_json_; }

  // These read files of a bounded size when called. kNotFound when the checkpoint has no tokenizer.
  Result<TokenizerSource> Tokenizer() const;
  // Empty when there is none. The first is the default one.
  Result<std::vector<ChatTemplateSource>> ChatTemplates() const;
  Result<SpecialTokens> ReadSpecialTokens() const;

  const TensorIndex& tensors() const { return tensors_; }
  bool Has(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }
  // kNotFound names the tensor and the checkpoint. The bytes lie where the file has them: aligned
  // to general.alignment in GGUF, to nothing in safetensors.
  Result<ConstTensorView> Tensor(std::string_view name) const;
  // The same, and its shape must be `shape`: kDataLoss tells both.
  Result<ConstTensorView> Tensor(std::string_view name, const Shape& shape) const;
  // kDataLoss when a float value or a block's scale is not finite; names file, tensor and offset.
  // Reads the whole tensor.
  Status CheckFinite(std::string_view name) const;
  // Copies this rank's part of a tensor into `out` (ShardShape says its shape) and, for block
  // types, checks that the copied scales are finite.
  Status LoadShard(std::string_view name, const ShardSpec& spec, TensorView out) const;

  // Advice to the kernel, for loading: start reading a tensor's pages, or drop them from this
  // process once they were copied or repacked, so that the file does not count twice. Both no-ops
  // for dummy tensors and unknown names.
  void Prefetch(std::string_view name) const;
  void Release(std::string_view name) const;

  // Gives a checkpoint without tensors random ones, made when first asked for.
  Status AddDummyTensors(std::vector<DummyTensor> tensors, uint64_t seed);

  std::span<const std::string> file_paths() const { return file_paths_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  friend class CheckpointLoader;
  Checkpoint() = default;

  // "model.gguf: tensor 'blk.0.attn_q.weight' at offset 4096".
  std::string Where(std::string_view name, const TensorInfo& info) const;

  std::filesystem::path path_;
  std::filesystem::path directory_;  // of the config files; empty for GGUF
  CheckpointFormat format_ = CheckpointFormat::kGguf;
  std::string architecture_;
  std::string config_json_;
  Metadata metadata_;
  Metadata generation_config_;
  TensorIndex tensors_;
  std::vector<MappedFile> files_;
  std::vector<std::string> file_paths_;
  std::unique_ptr<DummyStore> dummy_;
};

}  // namespace hayate::weights
