#include "ops/attention/sm90/launch.h"

namespace hayate::ops::sm90 {

void PagedAttention(Stream stream, const PagedAttentionArgs& args) {
  SimpleAttention(stream, args);
}

}  // namespace hayate::ops::sm90
