#include "ops/attention/paged_attention.h"

namespace hayate::ops {

void PagedAttention(Stream, Workspace&, const PagedAttentionArgs& args) {
  PagedAttentionReference(args);
}

int64_t PagedAttentionWorkspaceBytes(int64_t, int64_t, int32_t) { return 0; }

}  // namespace hayate::ops
