#include "models/detail/deepseek_draft_layer.h"

namespace hayate::models {

DraftWindow::DraftWindow(const DeepseekTrunkModel& target, int32_t num_blocks)
    : shape_(target.cache().WindowRows(0, nullptr)) {
  shape_.base = nullptr;
  shape_.page_stride = num_blocks * ops::LatentPageBytes(shape_);
  groups_ = {{.name = "draft_window",
              .kind = CacheKind::kWindow,
              .window = target.config().window,
              .page_bytes = shape_.page_stride}};
}

ops::LatentLayerView DraftWindow::Rows(int32_t block, std::byte* base) const {
  ops::LatentLayerView view = shape_;
  view.base = base + block * ops::LatentPageBytes(shape_);
  return view;
}

ops::LatentLayerView DraftWindow::Pages(int32_t page_rows, std::byte* base) const {
  ops::LatentLayerView view = shape_;
  view.page_rows = page_rows;
  view.base = base;
  view.page_stride = ops::LatentPageBytes(view);
  return view;
}

Status LoadDraftLayer(VendorTensors& tensors, const DeepseekTrunkConfig& config,
                      const TrunkShards& shards, const std::string& prefix, HyperLayer& layer) {
  RETURN_IF_ERROR(LoadHyperLayer(tensors, config, shards, prefix, layer));
  ASSIGN_OR_RETURN(layer.experts.choice_bias,
                   tensors.Floats(prefix + ".ffn.gate.bias", {shards.experts.num_experts}));
  return OkStatus();
}

}  // namespace hayate::models
