#include "ops/matmul/sm90/fused.h"

#include <algorithm>

#include "ops/matmul/sm90/fitted_gemm.h"
#include "ops/matmul/sm90/matrix.h"
#include "ops/quantize/fp8_rows.h"

namespace hayate::ops::sm90 {
namespace {

// With fewer, a launch of its own costs less than what the epilogue adds to the slowest tile: some
// 2 us a layer of Qwen3-8B at one token.
constexpr int64_t kMinGatedTokens = 9;

bool IsBf16(const PackedPart& part) { return PartFormat::Of(part).layout == MatrixLayout::kBf16; }

// One matrix of bf16 against rows of bf16, without a bias.
bool CanFuse(const MatmulArgs& args) {
  const PackedMatrix& w = *args.w;
  return w.parts.size() == 1 && IsBf16(w.parts[0]) && GemmSupports(Scaling::kNone, w.k) &&
         args.x.dtype == DType::kBF16 && args.bias == nullptr && args.x.rows() > 0;
}

GemmArgs ProductOf(const MatmulArgs& args) {
  return {.x = args.x.data,
          .w = args.w->storage.data() + args.w->parts[0].offset,
          .t = args.x.rows(),
          .n = args.w->n,
          .k = args.w->k,
          .order = args.w->sum_order,
          .x_norm = args.x_norm};
}

// fp8 in fitted tiles: SwiGLU in bf16, in what is the product's out, and rows of that quantised.
bool GatedFp8Matmul(Stream stream, const MatmulSwiGluArgs& args) {
  const MatmulArgs& product = args.product;
  const PackedMatrix& w = *product.w;
  const Fp8Rows& x = product.x_fp8;
  const bool vector =
      w.parts.size() == 1 && PartFormat::Of(w.parts[0]).layout == MatrixLayout::kFp8Vector;
  const bool rows = x.wanted() && x.scaling == Fp8Scaling::kPerToken && product.bias == nullptr;
  const bool quantised = args.glu.out.data == nullptr && args.glu.fp8.wanted();
  if (!vector || !rows || !quantised || product.out.dtype != DType::kBF16) return false;
  const std::byte* weights = w.storage.data() + w.parts[0].offset;
  const int64_t t = product.x.rows(), columns = w.n / 2;
  GemmArgs gemm{.out = product.out.data,
                .out_stride = columns,
                .x = x.codes,
                .w = weights,
                .x_scale = x.scales,
                .w_scale = reinterpret_cast<const float*>(
                    weights + ScalesOffset(PartFormat::Of(w.parts[0]), w.n, w.k)),
                .t = t,
                .n = w.n,
                .k = w.k,
                .scaling = Scaling::kVector,
                .order = w.sum_order};
  const auto fitted = ChooseFitted(gemm, ChooseGemm(gemm));
  gemm.gated = true;
  if (!fitted || !CanGateFitted(gemm)) return false;
  FittedGemm(stream, gemm, *fitted);
  QuantizeRows(
      stream, {.out = args.glu.fp8, .x = TensorView{product.out.data, DType::kBF16, {t, columns}}});
  return true;
}

}  // namespace

bool DividesRows(const PackedMatrix& w, int64_t t) {
  return t <= kMaxDeferredTokens && std::all_of(w.parts.begin(), w.parts.end(), IsBf16) &&
         GemmSupports(Scaling::kNone, w.k) && w.sum_order == SumOrder::kFastest;
}

std::optional<DeferredNorm> MatmulAddSquares(Stream stream, const MatmulAddNormArgs& args) {
  const AddRmsNormArgs& norm = args.norm;
  const int64_t t = norm.x.rows(), columns = norm.x.cols();
  const bool fits = CanFuse(args.product) && columns % 8 == 0 && t <= kMaxDeferredTokens &&
                    args.product.w->sum_order == SumOrder::kFastest;
  const bool defers = args.next != nullptr && DividesRows(*args.next, t) &&
                      norm.out.data != nullptr && norm.out.dtype == DType::kBF16 &&
                      !norm.fp8.wanted();
  if (!fits || !defers) return std::nullopt;
  GemmArgs gemm = ProductOf(args.product);
  gemm.out = norm.out.data;
  gemm.out_stride = columns;
  gemm.residual = norm.residual.as<float>();
  gemm.norm_weight = norm.weight;
  gemm.squares = args.squares;
  const GemmTiling tiling = ChooseGemm(gemm);
  GemmWithTiling(stream, gemm, tiling);
  return DeferredNorm{.squares = args.squares,
                      .parts = static_cast<int32_t>(SquareParts(tiling, columns)),
                      .columns = static_cast<int32_t>(columns),
                      .eps = norm.eps};
}

bool GatedMatmul(Stream stream, const MatmulSwiGluArgs& args) {
  if (GatedFp8Matmul(stream, args)) return true;
  const SwiGluArgs& glu = args.glu;
  const MatmulArgs& product = args.product;
  const int64_t t = product.x.rows();
  const bool own = OwnTilesWin(t) || FittedBeatsCublasLt(t);
  const bool fits = t >= kMinGatedTokens && CanFuse(product) && own;
  if (!fits || glu.out.data == nullptr || glu.out.dtype != DType::kBF16 || glu.fp8.wanted()) {
    return false;
  }
  GemmArgs gemm = ProductOf(product);
  // As the product alone would be tiled, so that its sums are the same.
  const GemmTiling tiling = ChooseGemm(gemm);
  const auto fitted = ChooseFitted(gemm, tiling);
  gemm.out = glu.out.data;
  gemm.out_stride = gemm.n / 2;
  gemm.gated = true;
  if (fitted) {
    if (!CanGateFitted(gemm)) return false;
    FittedGemm(stream, gemm, *fitted);
    return true;
  }
  if (!CanGate(tiling)) return false;
  GemmWithTiling(stream, gemm, tiling);
  return true;
}

}  // namespace hayate::ops::sm90
