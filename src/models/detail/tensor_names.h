#pragma once
// What the two formats call the tensors of a dense decoder.

#include <string>
#include <string_view>

#include "weights/checkpoint.h"

namespace hayate::models {

struct TensorNames {
  std::string_view embedding, final_norm, head;
  std::string_view layer_prefix;  // before the layer's number
  std::string_view attention_norm, q, k, v, output, q_norm, k_norm, sinks;
  std::string_view mlp_norm, gate, up, down;

  // "model.layers.3.self_attn.q_proj" + ".weight".
  std::string Layer(int layer, std::string_view name, std::string_view suffix = ".weight") const {
    std::string text(layer_prefix);
    text += std::to_string(layer);
    text += '.';
    text += name;
    text += suffix;
    return text;
  }
};

inline constexpr TensorNames kHfNames = {
    .embedding = "model.embed_tokens.weight",
    .final_norm = "model.norm.weight",
    .head = "lm_head.weight",
    .layer_prefix = "model.layers.",
    .attention_norm = "input_layernorm",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .output = "self_attn.o_proj",
    .q_norm = "self_attn.q_norm",
    .k_norm = "self_attn.k_norm",
    .sinks = "self_attn.sinks",
    .mlp_norm = "post_attention_layernorm",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
};

inline constexpr TensorNames kGgufNames = {
    .embedding = "token_embd.weight",
    .final_norm = "output_norm.weight",
    .head = "output.weight",
    .layer_prefix = "blk.",
    .attention_norm = "attn_norm",
    .q = "attn_q",
    .k = "attn_k",
    .v = "attn_v",
    .output = "attn_output",
    .q_norm = "attn_q_norm",
    .k_norm = "attn_k_norm",
    .sinks = "attn_sinks.weight",
    .mlp_norm = "ffn_norm",
    .gate = "ffn_gate",
    .up = "ffn_up",
    .down = "ffn_down",
};

// GPT-OSS' GGUF files: the norm before the experts has a name of its own.
inline constexpr TensorNames kGgufGptOssNames = [] {
  TensorNames names = kGgufNames;
  names.mlp_norm = "post_attention_norm";
  return names;
}();

inline const TensorNames& NamesOf(const weights::Checkpoint& checkpoint) {
  if (checkpoint.format() != weights::CheckpointFormat::kGguf) return kHfNames;
  return checkpoint.architecture() == "gpt-oss" ? kGgufGptOssNames : kGgufNames;
}

}  // namespace hayate::models
