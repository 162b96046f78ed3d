// Loading: formats, shards of quantised weights, ranks without work, damaged checkpoints.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "models/detail/tensor_names.h"
#include "models/tensor_list.h"
#include "models/testing/edited_checkpoint.h"
#include "models/testing/model_runner.h"
#include "weights/dequantize.h"
#include "weights/testing/gguf_builder.h"
#include "weights/testing/temp_directory.h"

namespace hayate::models {
namespace {

using testing::ModelRunner;
using testing::RunnerOptions;
using testing::WantedLogits;
using weights::Checkpoint;

constexpr const char* kGolden = "tests/golden/dense/";

std::vector<float> Dequantized(const Checkpoint& checkpoint, const std::string& name) {
  const ConstTensorView tensor = checkpoint.Tensor(name).value();
  std::vector<float> values(static_cast<size_t>(tensor.shape.num_elements()));
  weights::Dequantize(tensor, values);
  return values;
}

// What the converter of GGUF does to Llama's q and k: row (half, i) of a head becomes row (i,
// half).
std::vector<float> Interleave(const std::vector<float>& rows, int64_t heads, int64_t head_dim,
                              int64_t k) {
  std::vector<float> out(rows.size());
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < head_dim; ++i) {
      const int64_t from = h * head_dim + i % 2 * (head_dim / 2) + i / 2;
      std::copy_n(rows.begin() + from * k, k, out.begin() + (h * head_dim + i) * k);
    }
  }
  return out;
}

// The checkpoint of a golden case as a GGUF file.
void WriteAsGguf(const Checkpoint& from, std::string_view architecture,
                 const std::filesystem::path& path) {
  const ModelConfig config = ReadModelConfig(from).value();
  weights::GgufBuilder gguf;
  const auto key = [&](std::string_view name) {
    return std::string(architecture) + "." + std::string(name);
  };
  gguf.Set("general.architecture", architecture);
  gguf.Set(key("embedding_length"), static_cast<uint32_t>(config.hidden_size));
  gguf.Set(key("block_count"), static_cast<uint32_t>(config.num_layers));
  gguf.Set(key("attention.head_count"), static_cast<uint32_t>(config.num_heads));
  gguf.Set(key("attention.head_count_kv"), static_cast<uint32_t>(config.num_kv_heads));
  gguf.Set(key("attention.key_length"), static_cast<uint32_t>(config.head_dim));
  gguf.Set(key("attention.value_length"), static_cast<uint32_t>(config.head_dim));
  gguf.Set(key("feed_forward_length"), static_cast<uint32_t>(config.ffn_size));
  gguf.Set(key("context_length"), static_cast<uint32_t>(config.trained_context));
  gguf.Set(key("attention.layer_norm_rms_epsilon"), config.norm_eps);
  gguf.Set(key("rope.freq_base"), config.rope.base);
  const auto add = [&](const std::string& hf, const std::string& name, int64_t turned_heads) {
    if (!from.Has(hf)) return;
    std::vector<float> values = Dequantized(from, hf);
    const Shape shape = from.Tensor(hf)->shape;
    if (turned_heads > 0) {
      values = Interleave(values, turned_heads, config.head_dim, shape.rank() == 2 ? shape[1] : 1);
    }
    gguf.AddTensor(name, shape, values);
  };
  const bool turn = architecture == "llama";
  const TensorNames &hf = kHfNames, &own = kGgufNames;
  add(std::string(hf.embedding), std::string(own.embedding), 0);
  add(std::string(hf.final_norm), std::string(own.final_norm), 0);
  if (!config.tied_head) add(std::string(hf.head), std::string(own.head), 0);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    for (const std::string_view suffix : {".weight", ".bias"}) {
      const auto each = [&](std::string_view a, std::string_view b, int64_t heads = 0) {
        add(hf.Layer(layer, a, suffix), own.Layer(layer, b, suffix), turn ? heads : 0);
      };
      each(hf.attention_norm, own.attention_norm);
      each(hf.q, own.q, config.num_heads);
      each(hf.k, own.k, config.num_kv_heads);
      each(hf.v, own.v);
      each(hf.output, own.output);
      each(hf.q_norm, own.q_norm);
      each(hf.k_norm, own.k_norm);
      each(hf.mlp_norm, own.mlp_norm);
      each(hf.gate, own.gate);
      each(hf.up, own.up);
      each(hf.down, own.down);
    }
  }
  gguf.Write(path);
}

std::vector<float> Logits(const Checkpoint& checkpoint, const RunnerOptions& options,
                          const std::vector<int32_t>& tokens) {
  auto runner = ModelRunner::Create(checkpoint, options);
  EXPECT_TRUE(runner.ok()) << runner.status().ToString();
  return (*runner)->Step({{0, tokens, WantedLogits::kAll}});
}

double WorstDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - b[i]);
    worst = difference <= worst ? worst : difference;
  }
  return worst;
}

TEST(Load, AGgufFileGivesTheLogitsOfTheModelItWasMadeFrom) {
  const weights::TempDirectory directory;
  const std::vector<int32_t> tokens = {5, 99, 17, 230, 4, 4, 180, 77, 63, 12, 255, 1};
  for (const auto& [name, architecture] : {std::pair{"llama", "llama"},
                                           {"llama_bias", "llama"},
                                           {"llama_tied_9_3", "llama"},
                                           {"qwen2", "qwen2"},
                                           {"qwen3", "qwen3"}}) {
    const Checkpoint original = Checkpoint::Open(std::string(kGolden) + name).value();
    const auto path = directory.path() / (std::string(name) + ".gguf");
    WriteAsGguf(original, architecture, path);
    const Checkpoint converted = Checkpoint::Open(path).value();
    const RunnerOptions options = {.num_ranks = 2};
    EXPECT_LT(
        WorstDifference(Logits(converted, options, tokens), Logits(original, options, tokens)),
        1e-5)
        << name;
  }
}

// A llama with rows that every block type divides.
Checkpoint Dummy(const weights::TempDirectory& directory, DType dtype) {
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"hidden_size", 256},
                                 {"intermediate_size", 768},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 8},
                                 {"num_key_value_heads", 2},
                                 {"head_dim", 64},
                                 {"max_position_embeddings", 128},
                                 {"vocab_size", 100}};
  directory.Write("config.json", config.dump());
  Checkpoint checkpoint = Checkpoint::OpenConfig(directory.path()).value();
  const auto tensors = ListTensors(ReadModelConfig(checkpoint).value(), dtype).value();
  EXPECT_TRUE(checkpoint.AddDummyTensors(tensors, 1).ok());
  return checkpoint;
}

TEST(Load, ShardsOfQuantisedWeightsAddUpOnAnyNumberOfRanks) {
  const std::vector<int32_t> tokens = {3, 1, 4, 15, 92, 65};
  for (const DType dtype :
       {DType::kF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    const weights::TempDirectory directory;
    const Checkpoint checkpoint = Dummy(directory, dtype);
    const std::vector<float> one = Logits(checkpoint, {}, tokens);
    // Logits are of order 1; only the order of summation differs.
    for (const int num_ranks : {2, 3, 5}) {
      EXPECT_LT(WorstDifference(Logits(checkpoint, {.num_ranks = num_ranks}, tokens), one), 1e-4)
          << Info(dtype).name << " on " << num_ranks << " ranks";
    }
  }
}

TEST(Load, RanksBeyondTheHeadsDoTheirPartOfTheRest) {
  const Checkpoint checkpoint =
      Checkpoint::Open(std::string(kGolden) + "llama").value();  // 4 heads
  const std::vector<int32_t> tokens = {9, 8, 7, 6};
  auto runner = ModelRunner::Create(checkpoint, {.num_ranks = 7}).value();
  EXPECT_EQ(runner->model(6).page_bytes(0), 0);
  EXPECT_GT(runner->model(6).cache_layout().groups[0].page_bytes, 0);
  EXPECT_LT(WorstDifference(runner->Step({{0, tokens, WantedLogits::kAll}}),
                            Logits(checkpoint, {}, tokens)),
            1e-4);
}

TEST(Load, WindowLayersFormAGroupOfTheirOwn) {
  const Checkpoint checkpoint = Checkpoint::Open(std::string(kGolden) + "qwen2_window_16").value();
  const auto runner = ModelRunner::Create(checkpoint, {.page_tokens = 8}).value();
  const CacheLayout& layout = runner->model().cache_layout();
  ASSERT_EQ(layout.groups.size(), 2u);
  EXPECT_EQ(layout.groups[0].kind, CacheKind::kFull);
  EXPECT_EQ(layout.groups[1].kind, CacheKind::kWindow);
  EXPECT_EQ(layout.groups[1].window, 16);
  EXPECT_EQ(layout.groups[0].page_bytes, layout.groups[1].page_bytes);  // two layers each
}

TEST(Load, ProgressEndsAtTheWhole) {
  const Checkpoint checkpoint = Checkpoint::Open(std::string(kGolden) + "llama").value();
  auto device = MakeCpuDevice(0);
  int64_t last = 0, whole = 0;
  const auto model =
      LoadModel(checkpoint, {.device = device.get(), .progress = [&](int64_t done, int64_t total) {
                               EXPECT_GE(done, last);
                               last = done, whole = total;
                             }});
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(last, whole);
  EXPECT_GT(whole, 0);
  EXPECT_GT((*model)->weight_bytes(), 0);
}

TEST(Load, BadOptionsAndDamagedTensorsAreErrors) {
  using ::testing::HasSubstr;
  const Checkpoint checkpoint = Checkpoint::Open(std::string(kGolden) + "llama").value();
  auto device = MakeCpuDevice(0);
  const auto code = [&](LoadOptions options) {
    options.device = device.get();
    return LoadModel(checkpoint, options).status().code();
  };
  EXPECT_EQ(code({.kv_dtype = DType::kQ4_0}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.page_tokens = 0}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({.max_context = 513}), ErrorCode::kInvalidArgument);

  const weights::TempDirectory directory;
  const auto path = directory.path() / "model.gguf";
  const auto load = [&](const weights::GgufBuilder& gguf) {
    gguf.Write(path);
    const Checkpoint damaged = Checkpoint::Open(path).value();
    return LoadModel(damaged, {.device = device.get()}).status();
  };
  weights::GgufBuilder missing;
  for (const auto& [key, value] : {std::pair{"embedding_length", 8u},
                                   {"block_count", 1u},
                                   {"attention.head_count", 1u},
                                   {"feed_forward_length", 8u},
                                   {"context_length", 8u}}) {
    missing.Set(std::string("llama.") + key, uint32_t{value});
  }
  missing.Set("general.architecture", "llama");
  missing.AddTensor("token_embd.weight", Shape{4, 8}, std::vector<float>(32));
  EXPECT_THAT(load(missing).message(), HasSubstr("blk.0."));
  weights::GgufBuilder misshaped = missing;
  for (const char* name :
       {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
    misshaped.AddTensor(std::string("blk.0.") + name + ".weight", Shape{8, 8},
                        std::vector<float>(64));
  }
  weights::GgufBuilder infinite = misshaped;
  misshaped.AddTensor("blk.0.attn_norm.weight", Shape{9}, std::vector<float>(9));
  const Status shape = load(misshaped);
  EXPECT_EQ(shape.code(), ErrorCode::kDataLoss);
  EXPECT_THAT(shape.message(), HasSubstr("attn_norm"));
  infinite.AddTensor("blk.0.attn_norm.weight", Shape{8},
                     std::vector<float>(8, std::numeric_limits<float>::infinity()));
  const Status value = load(infinite);
  EXPECT_EQ(value.code(), ErrorCode::kDataLoss);
  EXPECT_THAT(value.message(), HasSubstr("attn_norm"));
}

TEST(Load, Nvfp4WeightsAreRefusedByWhatTheyAre) {
  const weights::TempDirectory directory;
  testing::EditedCheckpoint checkpoint("tests/golden/deepseek_v3/deepseek_v3", directory.path());
  checkpoint.tensors["model.layers.1.mlp.experts.0.up_proj.weight_scale_2"] = {
      "F32", {}, std::string(4, '\0')};
  const auto device = MakeCpuDevice(0);
  const Status status = LoadModel(checkpoint.Open(), {.device = device.get()}).status();
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("up_proj.weight_scale_2: NVFP4 weights; of"));
}

// A checkpoint of random weights in the shapes of a golden case's config runs.
TEST(Load, DummyTensorsOfEveryFamilyAreWhatTheModelAsksFor) {
  for (const char* name :
       {"qwen_moe/qwen3_moe_fp8", "qwen_moe/qwen2_moe", "gpt_oss/gpt_oss",
        "deepseek_v3/deepseek_v3", "deepseek_v32/deepseek_v32_fp8", "deepseek_v4/pro",
        "deepseek_drafts/v4_mtp", "deepseek_drafts/v4_pro_dspark", "deepseek_drafts/v41_dspark"}) {
    const std::string folder = std::string("tests/golden/") + name;
    Checkpoint dummy = Checkpoint::OpenConfig(folder).value();
    ASSERT_TRUE(dummy.AddDummyTensors(ListTensors(dummy, DType::kBF16).value(), 1).ok());
    const std::vector<float> logits = Logits(dummy, {.num_ranks = 2}, {5, 99, 17, 230});
    EXPECT_TRUE(std::ranges::all_of(logits, [](float v) { return std::isfinite(v); })) << name;
    // The golden checkpoint has no tensor that the list lacks, but for layers that are not loaded.
    const Checkpoint real = Checkpoint::Open(folder).value();
    for (const auto& [tensor, info] : real.tensors()) {
      if (tensor.starts_with("model.layers.3.") &&
          !dummy.Has("model.layers.3.input_layernorm.weight")) {
        continue;
      }
      ASSERT_TRUE(dummy.Has(tensor)) << name << " " << tensor;
      EXPECT_EQ(dummy.tensors().find(tensor)->second.shape, info.shape) << tensor;
    }
  }
}

// Counts and bytes of the checkpoints that were published, V4-Pro's as computed from them.
TEST(Load, TensorListsOfDeepseekV4AreThoseOfThePublishedCheckpoints) {
  struct Published {
    const char* name;
    size_t tensors;
    int64_t bytes;
  };
  for (const Published& published : {Published{"deepseek-v4-flash", 69187, 159609485896},
                                     Published{"deepseek-v4-flash-0731", 72317, 166878536440},
                                     Published{"deepseek-v4-pro", 145116, 864704792696}}) {
    const Checkpoint checkpoint =
        Checkpoint::OpenConfig(std::string("bench/models/") + published.name).value();
    const auto tensors = ListTensors(checkpoint, DType::kBF16).value();
    int64_t bytes = 0;
    for (const weights::DummyTensor& tensor : tensors) {
      bytes += tensor.shape.num_elements() * Info(tensor.dtype).block_bytes /
               Info(tensor.dtype).block_elements;
    }
    EXPECT_EQ(tensors.size(), published.tensors) << published.name;
    EXPECT_EQ(bytes, published.bytes) << published.name;
  }
}

}  // namespace
}  // namespace hayate::models
