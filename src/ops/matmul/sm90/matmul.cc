#include "ops/matmul/matmul.h"

#include <algorithm>

#include "base/check.h"
#include "ops/matmul/sm90/convert.h"
#include "ops/matmul/sm90/cublaslt.h"
#include "ops/matmul/sm90/fitted_gemm.h"
#include "ops/matmul/sm90/fused.h"
#include "ops/matmul/sm90/matrix.h"
#include "ops/matmul/sm90/simple_gemm.h"
#include "ops/matmul/sm90/stored_gemv.h"
#include "ops/quantize/fp8_rows.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int64_t kDequantBytes = int64_t{32} << 20;  // of bf16 weights at a time: stays in the L2

Scaling ScalingOf(MatrixLayout layout) {
  switch (layout) {
    case MatrixLayout::kFp8Block:
      return Scaling::kBlock;
    case MatrixLayout::kFp8Vector:
      return Scaling::kVector;
    default:
      return Scaling::kNone;
  }
}

// One call's state: x in the forms that the parts want, and scratch.
class Call {
 public:
  Call(Stream stream, Workspace& workspace, const MatmulArgs& args)
      : stream_(stream), workspace_(workspace), args_(args), w_(*args.w), t_(args.x.rows()) {}

  void Run() {
    int64_t row = 0;
    for (const PackedPart& part : w_.parts) {
      RunPart(part, row);
      row += part.n;
    }
  }

 private:
  int64_t out_stride() const { return args_.out_row_stride == 0 ? w_.n : args_.out_row_stride; }
  std::byte* OutAt(int64_t row) const {
    return args_.out.data + row * Info(args_.out.dtype).block_bytes;
  }
  const float* BiasAt(int64_t row) const {
    return args_.bias == nullptr ? nullptr : args_.bias + row;
  }

  void RunPart(const PackedPart& part, int64_t row) {
    const PartFormat format = PartFormat::Of(part);
    const std::byte* weights = w_.storage.data() + part.offset;
    switch (format.layout) {
      case MatrixLayout::kF32:
        return Simple(weights, DType::kF32, part.n, row);
      case MatrixLayout::kBf16:
        return Bf16(weights, part.n, row, false);
      case MatrixLayout::kFp8Block:
      case MatrixLayout::kFp8Vector:
        return Fp8(format, weights, part.n, row);
      case MatrixLayout::kStored:
        return Stored(format, weights, part.n, row);
      case MatrixLayout::kMxfp4:
        return Mxfp4(format, weights, part.n, row);
    }
  }

  void Simple(const std::byte* weights, DType dtype, int64_t n, int64_t row) {
    SimpleGemm(stream_, {.out = OutAt(row),
                         .out_dtype = args_.out.dtype,
                         .out_stride = out_stride(),
                         .x = args_.x.data,
                         .x_dtype = args_.x.dtype,
                         .w = weights,
                         .w_dtype = dtype,
                         .bias = BiasAt(row),
                         .t = t_,
                         .n = n,
                         .k = w_.k});
  }

  GemmArgs Args(const std::byte* weights, int64_t n, int64_t row) {
    return {.out = OutAt(row),
            .out_dtype = args_.out.dtype,
            .out_stride = out_stride(),
            .w = weights,
            .bias = BiasAt(row),
            .t = t_,
            .n = n,
            .k = w_.k,
            .order = w_.sum_order};
  }

  void Bf16(const std::byte* weights, int64_t n, int64_t row, bool w_changes) {
    if (!GemmSupports(Scaling::kNone, w_.k)) return Simple(weights, DType::kBF16, n, row);
    GemmArgs gemm = Args(weights, n, row);
    gemm.x = Bf16X();
    gemm.w_changes = w_changes;
    gemm.x_norm = args_.x_norm;
    if (PrefersCublasLt(gemm) && w_.cublaslt != nullptr &&
        w_.cublaslt->Run(stream_, gemm, CublasWorkspace())) {
      return;
    }
    Gemm(stream_, gemm);
  }

  void Fp8(const PartFormat& format, const std::byte* weights, int64_t n, int64_t row) {
    GemmArgs gemm = Args(weights, n, row);
    gemm.scaling = ScalingOf(format.layout);
    const Fp8Rows x =
        Fp8X(gemm.scaling == Scaling::kBlock ? Fp8Scaling::kPerGroup : Fp8Scaling::kPerToken);
    gemm.x = x.codes;
    gemm.x_scale = x.scales;
    gemm.x_scale_stride = x.group_stride;
    gemm.w_scale_stride = BlockScaleStride(n);
    gemm.w_scale = reinterpret_cast<const float*>(weights + ScalesOffset(format, n, w_.k));
    Gemm(stream_, gemm);
  }

  // A few tokens: decoded on the way. More: in slices of rows, weights to bf16, then the product.
  void Stored(const PartFormat& format, const std::byte* weights, int64_t n, int64_t row) {
    if (t_ <= kMaxGemvTokens && w_.sum_order == SumOrder::kFastest) {
      return StoredGemv(stream_, {.out = OutAt(row),
                                  .out_dtype = args_.out.dtype,
                                  .out_stride = out_stride(),
                                  .x = Bf16X(),
                                  .w = weights,
                                  .type = format.stored,
                                  .bias = BiasAt(row),
                                  .t = t_,
                                  .n = n,
                                  .k = w_.k});
    }
    const int64_t step = SliceRows(n);
    std::byte* slice = workspace_.TakeArray<std::byte>(step * w_.k * 2);
    for (int64_t first = 0; first < n; first += step) {
      const int64_t rows = std::min(step, n - first);
      ConvertWeights(stream_, {.out = slice,
                               .from = weights + CodeBytes(format, first, w_.k),
                               .type = format.stored,
                               .rows = rows,
                               .k = w_.k});
      Bf16(slice, rows, row + first, true);
    }
  }

  void Mxfp4(const PartFormat& format, const std::byte* weights, int64_t n, int64_t row) {
    const int64_t step = SliceRows(n);
    const std::byte* scales = weights + ScalesOffset(format, n, w_.k);
    std::byte* slice = workspace_.TakeArray<std::byte>(step * w_.k * 2);
    for (int64_t first = 0; first < n; first += step) {
      const int64_t rows = std::min(step, n - first);
      ConvertMxfp4(stream_, {.out = slice,
                             .codes = weights + CodeBytes(format, first, w_.k),
                             .scales = scales + first * (w_.k / 32),
                             .rows = rows,
                             .k = w_.k});
      Bf16(slice, rows, row + first, true);
    }
  }
  // Rows of bf16 weights that are made at a time.
  int64_t SliceRows(int64_t n) const {
    return std::clamp<int64_t>(AlignDown<int64_t>(kDequantBytes / (2 * w_.k), 128), 1, n);
  }

  const void* Bf16X() {
    if (args_.x.dtype == DType::kBF16) return args_.x.data;
    if (bf16_x_ == nullptr) {
      bf16_x_ = workspace_.TakeArray<std::byte>(t_ * w_.k * 2);
      ConvertWeights(
          stream_,
          {.out = bf16_x_, .from = args_.x.data, .type = args_.x.dtype, .rows = t_, .k = w_.k});
    }
    return bf16_x_;
  }

  // What the caller has, or made here.
  Fp8Rows Fp8X(Fp8Scaling scaling) {
    if (args_.x_fp8.wanted() && args_.x_fp8.scaling == scaling) return args_.x_fp8;
    if (fp8_x_.wanted() && fp8_x_.scaling == scaling) return fp8_x_;
    fp8_x_ = TakeFp8Rows(workspace_, scaling, t_, w_.k);
    QuantizeRows(stream_, {.out = fp8_x_, .x = args_.x});
    return fp8_x_;
  }

  void* CublasWorkspace() {
    if (cublas_ == nullptr) cublas_ = workspace_.TakeArray<std::byte>(kCublasLtWorkspaceBytes);
    return cublas_;
  }

  bool PrefersCublasLt(const GemmArgs& gemm) const {
    return !OwnTilesWin(gemm.t) && !FittedBeatsCublasLt(gemm.t) && gemm.bias == nullptr &&
           w_.sum_order == SumOrder::kFastest;
  }

  const Stream stream_;
  Workspace& workspace_;
  const MatmulArgs& args_;
  const PackedMatrix& w_;
  const int64_t t_;
  std::byte* bf16_x_ = nullptr;
  std::byte* cublas_ = nullptr;
  Fp8Rows fp8_x_;
};

}  // namespace

void Matmul(Stream stream, Workspace& workspace, const MatmulArgs& args) {
  DCHECK(!args.x_norm.pending() || DividesRows(*args.w, args.x.rows()));
  DCHECK_EQ(args.x.cols(), args.w->k);
  DCHECK_EQ(args.out.cols(), args.w->n);
  if (args.x.rows() == 0) return;
  const size_t mark = workspace.mark();
  Call(stream, workspace, args).Run();
  workspace.ResetTo(mark);
}

int64_t MatmulWorkspaceBytes(int64_t t, int64_t k) {
  const int64_t x_bf16 = t * k * 2;
  const int64_t x_fp8 = t * k + CeilDiv<int64_t>(k, kScaleColumns) *
                                    AlignUp<int64_t>(t, kXScaleRows) *
                                    static_cast<int64_t>(sizeof(float));
  const int64_t slice = std::max<int64_t>(kDequantBytes, 2 * k);
  constexpr int64_t kPieces = 6;
  return std::max(x_bf16, x_fp8) + kCublasLtWorkspaceBytes + slice +
         kPieces * static_cast<int64_t>(Workspace::kAlignment);
}

std::optional<Fp8Scaling> Fp8ScalingOf(const PackedMatrix& w) {
  std::optional<Fp8Scaling> scaling;
  for (const PackedPart& part : w.parts) {
    const MatrixLayout layout = PartFormat::Of(part).layout;
    if (layout != MatrixLayout::kFp8Block && layout != MatrixLayout::kFp8Vector) return {};
    const auto of_part =
        layout == MatrixLayout::kFp8Block ? Fp8Scaling::kPerGroup : Fp8Scaling::kPerToken;
    if (scaling && *scaling != of_part) return {};
    scaling = of_part;
  }
  return scaling;
}

}  // namespace hayate::ops::sm90
