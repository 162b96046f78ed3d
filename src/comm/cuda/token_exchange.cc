#include "comm/cuda/token_exchange.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "comm/cuda/device_scope.h"
#include "comm/cuda/peer_group.h"
#include "tensor/buffer.h"
#include "tensor/cuda/check.h"

namespace hayate::comm::cuda {
namespace {

// One for all ranks. Freed with the last of them.
struct Shared {
  std::vector<Buffer> memory;  // ExchangeMemory of each rank
  std::vector<Buffer> tables;  // of each rank: every placement's first_replica, then replicas
  Buffer fault;                // pinned ExchangeFault
};

// Whether every logical expert is its own only copy.
bool IsIdentity(const ExpertPlacement& placement) {
  if (placement.num_physical() != placement.num_experts()) return false;
  const auto logical = placement.logical_of_physical();
  for (size_t i = 0; i < logical.size(); ++i) {
    if (logical[i] != static_cast<int32_t>(i)) return false;
  }
  return true;
}

class PeerTokenExchange final : public TokenExchange {
 public:
  PeerTokenExchange(Group& group, std::shared_ptr<Shared> shared, const ExchangePeers& peers,
                    std::span<const ExpertPlacement> placements, std::vector<ReplicaTable> tables)
      : TokenExchange(group),
        shared_(std::move(shared)),
        placements_(placements),
        tables_(std::move(tables)) {
    step_.peers = peers;
  }

  const int32_t* ChooseReplicas(Stream stream, Workspace& workspace,
                                const ExpertPlacement& placement, const int32_t* chosen,
                                Shape shape) override {
    const ReplicaTable& table = tables_[IndexOf(placement)];
    const int64_t count = shape.num_elements();
    if (table.replicas == nullptr || count == 0) return chosen;
    int32_t* physical = workspace.TakeArray<int32_t>(count);
    ChooseReplicaOf(stream, table, chosen, count, static_cast<int32_t>(shape[1]), rank(), physical);
    return physical;
  }

  DispatchedRows Dispatch(Stream stream, Workspace& workspace, const DispatchArgs& args) override {
    CHECK_EQ(args.rows.size(), static_cast<size_t>(size()));
    CHECK_EQ(args.placement->num_ranks(), size());
    (void)IndexOf(*args.placement);
    const int64_t row_bytes = RowBytes(args.x.dtype, args.x.shape[1]);
    CHECK_EQ(row_bytes % static_cast<int64_t>(sizeof(uint32_t) * 4), 0) << "a row of bytes";
    std::inclusive_scan(args.rows.begin(), args.rows.end(), step_.first_row + 1);
    step_.choices = args.choices;
    step_.per_rank = args.placement->per_rank();
    step_.row_units = row_bytes / 16;
    const int64_t total = step_.first_row[size()];
    const int64_t pairs = total * args.choices;
    DispatchedRows out = {.x = workspace.Take(args.x.dtype, {total, args.x.shape[1]}),
                          .choices = args.choices};
    int32_t* places = workspace.TakeArray<int32_t>(pairs);
    float* weights = workspace.TakeArray<float>(pairs);
    out.places = places;
    out.weights = weights;
    if (total == 0) return out;  // on all ranks alike
    DispatchRows(
        stream, step_,
        {.x = args.x.data, .experts = args.experts, .weights = args.weights, .rows = args.x.rows()},
        out.x.data, places, weights);
    return out;
  }

  void Combine(Stream stream, ConstTensorView results, TensorView out) override {
    if (step_.first_row[size()] == 0) return;
    CHECK_EQ(results.num_bytes(),
             int64_t{step_.first_row[size()]} * step_.choices * step_.row_units * 16);
    CombineRows(stream, step_, results.data, out.data);
  }

  Status failure() const override {
    auto* fault = reinterpret_cast<ExchangeFault*>(shared_->fault.data());
    // Written behind the rest by the kernel that found it.
    if (std::atomic_ref(fault->found).load(std::memory_order_acquire) == 0) return OkStatus();
    return Error(ErrorCode::kInternal, "rank {} brought {} rows to an exchange; all expected {}",
                 fault->rank, fault->brought, fault->expected);
  }

 private:
  size_t IndexOf(const ExpertPlacement& placement) const {
    const ptrdiff_t index = &placement - placements_.data();
    CHECK(index >= 0 && index < std::ssize(placements_));
    return static_cast<size_t>(index);
  }

  const std::shared_ptr<Shared> shared_;
  const std::span<const ExpertPlacement> placements_;
  const std::vector<ReplicaTable> tables_;  // as placements; null where copies are not to choose
  ExchangeStep step_;                       // of the exchange under way
};

// The placements' tables on a device, and where each begins.
Result<Buffer> PutTables(Device& device, std::span<const ExpertPlacement> placements,
                         std::vector<ReplicaTable>& tables) {
  std::vector<int32_t> words;
  std::vector<std::pair<size_t, size_t>> begins;
  for (const ExpertPlacement& placement : placements) {
    begins.emplace_back(words.size(),
                        words.size() + static_cast<size_t>(placement.num_experts()) + 1);
    std::vector<int32_t> replicas;
    for (int32_t logical = 0; logical < placement.num_experts(); ++logical) {
      words.push_back(static_cast<int32_t>(replicas.size()));
      const auto own = placement.replicas(logical);
      replicas.insert(replicas.end(), own.begin(), own.end());
    }
    words.push_back(static_cast<int32_t>(replicas.size()));
    words.insert(words.end(), replicas.begin(), replicas.end());
  }
  const size_t bytes = words.size() * sizeof(int32_t);
  ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(device, bytes));
  if (bytes > 0) device.Upload(memory.data(), words.data(), bytes);
  device.FinishLoading();
  const auto* base = reinterpret_cast<const int32_t*>(memory.data());
  tables.clear();
  for (size_t i = 0; i < placements.size(); ++i) {
    const bool identity = IsIdentity(placements[i]);
    tables.push_back(identity ? ReplicaTable{}
                              : ReplicaTable{base + begins[i].first, base + begins[i].second});
  }
  return memory;
}

}  // namespace

Result<std::vector<std::unique_ptr<TokenExchange>>> MakePeerExchange(
    std::span<Device* const> devices, std::span<const std::unique_ptr<Group>> group,
    std::span<const ExpertPlacement> placements) {
  const DeviceScope restore;
  auto shared = std::make_shared<Shared>();
  std::vector<std::vector<ReplicaTable>> tables(devices.size());
  const ExchangeMemory cleared = {};
  for (size_t r = 0; r < devices.size(); ++r) {
    Device& device = *devices[r];
    ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(device, sizeof(ExchangeMemory)));
    CUDA_CHECK(&device, cudaSetDevice(DeviceIndexOf(memory.data())));
    LoadExchangeKernels(&device);
    device.Upload(memory.data(), &cleared, sizeof(cleared));
    ASSIGN_OR_RETURN(Buffer placed, PutTables(device, placements, tables[r]));
    shared->memory.push_back(std::move(memory));
    shared->tables.push_back(std::move(placed));
    RETURN_IF_ERROR(device.status());
  }
  ASSIGN_OR_RETURN(shared->fault,
                   Buffer::Allocate(*devices[0], sizeof(ExchangeFault), MemoryKind::kPinned));
  *reinterpret_cast<ExchangeFault*>(shared->fault.data()) = {};

  ExchangePeers peers = {.poisoned = PoisonOf(*group[0]),
                         .fault = reinterpret_cast<ExchangeFault*>(shared->fault.data()),
                         .size = static_cast<int>(devices.size()),
                         .max_blocks = MaxBlocksOf(shared->memory)};
  for (size_t r = 0; r < devices.size(); ++r) {
    peers.memory[r] = reinterpret_cast<ExchangeMemory*>(shared->memory[r].data());
  }
  std::vector<std::unique_ptr<TokenExchange>> exchanges;
  for (size_t r = 0; r < devices.size(); ++r, ++peers.rank) {
    exchanges.push_back(std::make_unique<PeerTokenExchange>(*group[r], shared, peers, placements,
                                                            std::move(tables[r])));
  }
  return exchanges;
}

}  // namespace hayate::comm::cuda
