#include "exec/weight_places.h"

#include <algorithm>

#include "base/align.h"
#include "base/check.h"
#include "base/error.h"

namespace hayate::exec {
namespace {

constexpr size_t kAlignment = 512;  // as CUDA devices align

}  // namespace

WeightPlaces::~WeightPlaces() {
  scratch_ = Buffer();
  for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
    if (!piece->is_temporary()) device_.Free(piece->at, piece->bytes, piece->kind);
  }
}

// As Allocate will lay them out.
size_t WeightPlaces::ScratchBytes() const {
  size_t largest = 0, used = 0;
  std::vector<size_t> alive;  // when they come back
  for (size_t i = 0; i < pieces_.size(); ++i) {
    std::erase_if(alive, [&](size_t freed_at) { return freed_at <= i; });
    if (alive.empty()) used = 0;
    if (!pieces_[i].is_temporary() || pieces_[i].kind != MemoryKind::kDevice) continue;
    alive.push_back(pieces_[i].freed_at);
    used += AlignUp(pieces_[i].bytes, kAlignment);
    largest = std::max(largest, used);
  }
  return largest;
}

Status WeightPlaces::Keep() {
  CHECK(!kept_);
  if (const size_t bytes = ScratchBytes(); bytes > 0) {
    ASSIGN_OR_RETURN(scratch_, Buffer::Allocate(device_, bytes));
  }
  kept_ = true;
  next_ = pieces_.size();
  return OkStatus();
}

void WeightPlaces::Rewind() {
  CHECK(kept_);
  CHECK_EQ(scratch_pieces_, 0u) << "a loading is under way";
  next_ = 0;
}

bool WeightPlaces::InScratch(const void* pointer) const {
  const auto* at = static_cast<const std::byte*>(pointer);
  return at >= scratch_.data() && at < scratch_.data() + scratch_.size();
}

Result<void*> WeightPlaces::Allocate(size_t bytes, MemoryKind kind) {
  if (!kept_) {
    ASSIGN_OR_RETURN(void* at, device_.Allocate(bytes, kind));
    pieces_.push_back({at, bytes, kind});
    return at;
  }
  if (next_ == pieces_.size() || pieces_[next_].bytes != bytes || pieces_[next_].kind != kind) {
    return Error(ErrorCode::kInvalidArgument,
                 "the checkpoint's weights lie differently: piece {} of {} has {} bytes", next_,
                 pieces_.size(), bytes);
  }
  const Piece& piece = pieces_[next_++];
  if (!piece.is_temporary()) return piece.at;
  if (kind == MemoryKind::kPinned) return device_.Allocate(bytes, kind);
  const size_t room = AlignUp(bytes, kAlignment);
  if (room > scratch_.size() - scratch_used_) {
    return Error(ErrorCode::kInvalidArgument,
                 "loading needs more memory for a while than it did at the start: {} bytes beside "
                 "{} of {}",
                 bytes, scratch_used_, scratch_.size());
  }
  std::byte* at = scratch_.data() + scratch_used_;
  scratch_used_ += room;
  ++scratch_pieces_;
  return at;
}

void WeightPlaces::Free(void* pointer, size_t bytes, MemoryKind kind) {
  const auto piece = std::find_if(pieces_.rbegin(), pieces_.rend(), [&](const Piece& p) {
    return p.at == pointer && !p.is_temporary();
  });
  if (!kept_) {
    CHECK(piece != pieces_.rend());
    piece->freed_at = pieces_.size();
    return device_.Free(pointer, bytes, kind);
  }
  if (InScratch(pointer)) {
    if (--scratch_pieces_ == 0) scratch_used_ = 0;
  } else if (piece == pieces_.rend()) {
    device_.Free(pointer, bytes, kind);  // pinned, for a while
  }
}

}  // namespace hayate::exec
