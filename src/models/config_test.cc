#include "models/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "weights/testing/gguf_builder.h"
#include "weights/testing/temp_directory.h"

namespace hayate::models {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

Json Llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 64},
          {"intermediate_size", 160},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 512},
          {"vocab_size", 256},
          {"eos_token_id", {2, 7}}};
}

Result<ModelConfig> Read(const Json& json) {
  const weights::TempDirectory directory;
  directory.Write("config.json", json.dump());
  const auto checkpoint = weights::Checkpoint::OpenConfig(directory.path());
  return checkpoint.ok() ? ReadModelConfig(*checkpoint) : checkpoint.status();
}
Json With(Json json, const Json& changes) {
  json.merge_patch(changes);  // null removes
  return json;
}

TEST(HfConfig, FillsInWhatOldFilesLeaveOut) {
  const ModelConfig config = Read(With(Llama(), {{"num_key_value_heads", nullptr}})).value();
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_FLOAT_EQ(config.norm_eps, 1e-6f);
  EXPECT_FLOAT_EQ(config.rope.base, 10000.0f);
  EXPECT_FALSE(config.qkv_bias || config.output_bias || config.mlp_bias || config.tied_head);
  EXPECT_EQ(config.windows, std::vector<int32_t>(3, 0));
  EXPECT_EQ(config.eos_ids, (std::vector<int32_t>{2, 7}));
}

TEST(HfConfig, BothSpellingsOfTheRotationMeanTheSame) {
  const Json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 64}};
  const ModelConfig old_style =
      Read(With(Llama(), {{"rope_theta", 500000.0}, {"rope_scaling", scaling}})).value();
  const ModelConfig new_style =
      Read(With(Llama(), {{"rope_parameters", With(scaling, {{"rope_theta", 500000.0}})}})).value();
  for (const ModelConfig& config : {old_style, new_style}) {
    EXPECT_EQ(config.rope.scaling, ops::RopeScaling::kLlama3);
    EXPECT_EQ(config.rope.base, 500000.0f);
    EXPECT_EQ(config.rope.factor, 8.0f);
    EXPECT_EQ(config.rope.original_context, 64);
  }
  const Json older = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(Read(With(Llama(), {{"rope_scaling", older}}))->rope.scaling,
            ops::RopeScaling::kLinear);
}

TEST(HfConfig, WindowsFollowTheFamilysRules) {
  const Json window = {{"sliding_window", 8}};
  EXPECT_EQ(Read(With(Llama(), window))->windows, std::vector<int32_t>(3, 0));
  const Json mistral = With(Llama(), {{"architectures", {"MistralForCausalLM"}}});
  EXPECT_EQ(Read(With(mistral, window))->windows, std::vector<int32_t>(3, 8));
  EXPECT_EQ(Read(mistral)->windows, std::vector<int32_t>(3, 0));
  Json qwen = With(
      Llama(),
      {{"architectures", {"Qwen2ForCausalLM"}}, {"sliding_window", 8}, {"max_window_layers", 1}});
  EXPECT_EQ(Read(qwen)->windows, std::vector<int32_t>(3, 0));
  qwen["use_sliding_window"] = true;
  EXPECT_EQ(Read(qwen)->windows, (std::vector<int32_t>{0, 8, 8}));
  qwen["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  EXPECT_EQ(Read(qwen)->windows, (std::vector<int32_t>{8, 0, 0}));
}

TEST(HfConfig, FamiliesDifferInBiasesAndNorms) {
  const ModelConfig qwen2 = Read(With(Llama(), {{"architectures", {"Qwen2ForCausalLM"}}})).value();
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.output_bias && !qwen2.qk_norm);
  const ModelConfig qwen3 = Read(With(Llama(), {{"architectures", {"Qwen3ForCausalLM"}}})).value();
  EXPECT_TRUE(!qwen3.qkv_bias && qwen3.qk_norm);
  EXPECT_EQ(qwen3.head_dim, 128);
  const ModelConfig biased = Read(With(Llama(), {{"attention_bias", true}})).value();
  EXPECT_TRUE(biased.qkv_bias && biased.output_bias);
}

struct Refusal {
  Json changes;
  ErrorCode code;
  const char* names;
};

TEST(HfConfig, WhatCannotBeRunIsRefusedByName) {
  const Refusal refusals[] = {
      {{{"architectures", {"GPT2LMHeadModel"}}}, ErrorCode::kUnsupported, "GPT2LMHeadModel"},
      {{{"hidden_size", nullptr}}, ErrorCode::kNotFound, "hidden_size"},
      {{{"hidden_size", "wide"}}, ErrorCode::kDataLoss, "hidden_size"},
      {{{"hidden_size", -64}}, ErrorCode::kDataLoss, "hidden_size"},
      {{{"num_hidden_layers", 1000000}}, ErrorCode::kDataLoss, "num_hidden_layers"},
      {{{"num_attention_heads", 0}}, ErrorCode::kDataLoss, "num_attention_heads"},
      {{{"num_key_value_heads", 3}}, ErrorCode::kDataLoss, "key-value heads"},
      {{{"vocab_size", 1e30}}, ErrorCode::kDataLoss, "vocab_size"},
      {{{"hidden_act", "gelu"}}, ErrorCode::kUnsupported, "hidden_act"},
      {{{"quantization_config", {{"quant_method", "gptq"}}}}, ErrorCode::kUnsupported, "gptq"},
      {{{"quantization_config", {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}}},
       ErrorCode::kUnsupported,
       "'modelopt' of NVFP4; of safetensors' weights there are"},
      {{{"rope_scaling", {{"rope_type", "longrope"}}}}, ErrorCode::kUnsupported, "longrope"},
      {{{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 0.5}}}},
       ErrorCode::kDataLoss,
       "factor"},
      {{{"rope_theta", 0}}, ErrorCode::kDataLoss, "rope base"},
      {{{"head_dim", 15}}, ErrorCode::kDataLoss, "rotary_dim"},
      {{{"partial_rotary_factor", 2.0}}, ErrorCode::kDataLoss, "partial_rotary_factor"},
      {{{"architectures", {"Qwen2ForCausalLM"}},
        {"use_sliding_window", true},
        {"sliding_window", 4},
        {"layer_types", {"sliding_attention"}}},
       ErrorCode::kDataLoss,
       "layer types"},
      {{{"architectures", {"Qwen2ForCausalLM"}},
        {"use_sliding_window", true},
        {"sliding_window", 4},
        {"layer_types", {"full_attention", "linear_attention", "full_attention"}}},
       ErrorCode::kUnsupported,
       "layer_types[1]"},
  };
  for (const Refusal& refusal : refusals) {
    const Result<ModelConfig> config = Read(With(Llama(), refusal.changes));
    EXPECT_EQ(config.status().code(), refusal.code)
        << refusal.changes << config.status().ToString();
    EXPECT_THAT(config.status().message(), HasSubstr(refusal.names)) << refusal.changes;
  }
}

weights::GgufBuilder Gguf(std::string_view architecture) {
  weights::GgufBuilder gguf;
  const std::string prefix = std::string(architecture) + ".";
  gguf.Set("general.architecture", architecture);
  gguf.Set(prefix + "embedding_length", uint32_t{32});
  gguf.Set(prefix + "block_count", uint32_t{2});
  gguf.Set(prefix + "attention.head_count", uint32_t{4});
  gguf.Set(prefix + "feed_forward_length", uint32_t{64});
  gguf.Set(prefix + "context_length", uint32_t{128});
  gguf.AddTensor("token_embd.weight", Shape{10, 32}, std::vector<float>(320));
  return gguf;
}
Result<ModelConfig> Read(const weights::GgufBuilder& gguf) {
  const weights::TempDirectory directory;
  gguf.Write(directory.path() / "model.gguf");
  const auto checkpoint = weights::Checkpoint::Open(directory.path() / "model.gguf");
  return checkpoint.ok() ? ReadModelConfig(*checkpoint) : checkpoint.status();
}

TEST(GgufConfig, ReadsFactsFromKeysAndTensors) {
  weights::GgufBuilder gguf = Gguf("llama");
  gguf.Set("llama.attention.head_count_kv", uint32_t{2});
  gguf.Set("llama.rope.freq_base", 100000.0f);
  gguf.Set("llama.attention.sliding_window", uint32_t{16});
  gguf.AddTensor("rope_freqs.weight", Shape{4}, {1.0f, 1.0f, 4.0f, 8.0f});
  gguf.AddTensor("blk.0.attn_q.bias", Shape{32}, std::vector<float>(32));
  const ModelConfig config = Read(gguf).value();
  EXPECT_EQ(config.vocab_size, 10);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.rope.base, 100000.0f);
  EXPECT_EQ(config.rope.pairing, ops::RopePairing::kInterleaved);
  EXPECT_EQ(config.rope.freq_factors, (std::vector<float>{1.0f, 1.0f, 4.0f, 8.0f}));
  EXPECT_EQ(config.windows, (std::vector<int32_t>{16, 16}));
  EXPECT_TRUE(config.qkv_bias && config.tied_head && !config.output_bias);
  EXPECT_EQ(Read(Gguf("qwen2"))->rope.pairing, ops::RopePairing::kHalves);
}

TEST(GgufConfig, WhatCannotBeRunIsRefusedByName) {
  weights::GgufBuilder experts = Gguf("llama");
  experts.Set("llama.expert_count", uint32_t{8});
  EXPECT_THAT(Read(experts).status().message(), HasSubstr("llama.expert_count"));
  weights::GgufBuilder values = Gguf("llama");
  values.Set("llama.attention.value_length", uint32_t{4});
  EXPECT_THAT(Read(values).status().message(), HasSubstr("value_length"));
  weights::GgufBuilder scaling = Gguf("qwen3");
  scaling.Set("qwen3.rope.scaling.type", "longrope");
  EXPECT_THAT(Read(scaling).status().message(), HasSubstr("longrope"));
  weights::GgufBuilder freqs = Gguf("llama");
  freqs.AddTensor("rope_freqs.weight", Shape{3}, {1.0f, 1.0f, 1.0f});
  EXPECT_THAT(Read(freqs).status().message(), HasSubstr("rope_freqs.weight"));
  EXPECT_EQ(Read(Gguf("gpt2")).status().code(), ErrorCode::kUnsupported);
}

Json Qwen3Moe() {
  return With(Llama(), {{"architectures", {"Qwen3MoeForCausalLM"}},
                        {"num_experts", 8},
                        {"num_experts_per_tok", 2},
                        {"moe_intermediate_size", 48},
                        {"norm_topk_prob", true}});
}
Json GptOss() {
  return With(Llama(), {{"architectures", {"GptOssForCausalLM"}},
                        {"num_local_experts", 32},
                        {"num_experts_per_tok", 4},
                        {"experts_per_token", 4},
                        {"sliding_window", 128},
                        {"quantization_config", {{"quant_method", "mxfp4"}}}});
}

TEST(HfConfig, SparseLayersComeFromStepAndExceptions) {
  const ModelConfig config =
      Read(With(Qwen3Moe(),
                {{"num_hidden_layers", 6}, {"decoder_sparse_step", 2}, {"mlp_only_layers", {3}}}))
          .value();
  EXPECT_EQ(config.moe->sparse, (std::vector<bool>{false, true, false, false, false, true}));
  EXPECT_EQ(config.moe->expert_size, 48);
  EXPECT_TRUE(config.moe->router.renormalise && config.qk_norm);
  EXPECT_FALSE(Read(Llama())->moe.has_value());
}

TEST(HfConfig, GptOssFillsInItsClampsAndWindows) {
  const ModelConfig config = Read(GptOss()).value();
  EXPECT_EQ(config.windows, (std::vector<int32_t>{128, 0, 128}));
  EXPECT_TRUE(config.attention_sinks && config.qkv_bias && config.output_bias);
  EXPECT_FLOAT_EQ(config.moe->form.limit, 7.0f);
  EXPECT_FLOAT_EQ(config.moe->form.alpha, 1.702f);
  EXPECT_EQ(config.moe->router.score, ops::RouterScore::kSoftmaxOfChosen);
}

TEST(HfConfig, RefusesContradictoryMixtures) {
  const auto message = [](const Json& json) { return std::string(Read(json).status().message()); };
  EXPECT_THAT(message(With(Qwen3Moe(), {{"num_local_experts", 16}})),
              HasSubstr("num_experts is 8, but num_local_experts is 16"));
  EXPECT_THAT(message(With(Qwen3Moe(), {{"num_experts_per_tok", 9}})),
              HasSubstr("experts to a token is 9"));
  EXPECT_THAT(message(With(Qwen3Moe(), {{"num_experts", nullptr}})),
              HasSubstr("num_local_experts"));
  EXPECT_THAT(message(With(Qwen3Moe(), {{"mlp_only_layers", {3}}})),
              HasSubstr("mlp_only_layers names layer 3"));
  EXPECT_THAT(message(With(GptOss(), {{"experts_per_token", 8}})),
              HasSubstr("num_experts_per_tok is 4, but experts_per_token is 8"));
  EXPECT_THAT(message(With(GptOss(), {{"swiglu_limit", 0}})), HasSubstr("swiglu_limit is 0"));
}

TEST(HfConfig, ReadsFp8BlocksAndRefusesOtherQuantisation) {
  const auto with = [](const Json& json, const Json& quantization) {
    return Read(With(json, {{"quantization_config", quantization}}));
  };
  const Json fp8 = {{"quant_method", "fp8"}, {"weight_block_size", {128, 64}}};
  const ModelConfig config = with(Llama(), fp8).value();
  EXPECT_EQ(config.fp8_block.rows, 128);
  EXPECT_EQ(config.fp8_block.cols, 64);
  EXPECT_EQ(with(Llama(), {{"quant_method", "gptq"}}).status().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(with(Qwen3Moe(), {{"quant_method", "mxfp4"}}).status().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(with(Llama(), {{"quant_method", "fp8"}}).status().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(with(Llama(), With(fp8, {{"weight_block_size", {128, 48}}})).status().code(),
            ErrorCode::kDataLoss);
}

}  // namespace
}  // namespace hayate::models
