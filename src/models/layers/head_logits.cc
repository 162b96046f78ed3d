#include "models/layers/head_logits.h"

namespace hayate::models {

void WriteLogits(const ForwardContext& context, const Linear& head, Range vocab, int32_t vocab_size,
                 ConstTensorView x, float* logits) {
  if (!head.weights) return;
  const TensorView slice{reinterpret_cast<std::byte*>(logits + vocab.begin), DType::kF32,
                         Shape{x.shape[0], vocab.size()}};
  ops::Matmul(context.stream, *context.workspace,
              {.out = slice, .x = x, .w = &*head.weights, .out_row_stride = vocab_size});
}

}  // namespace hayate::models
