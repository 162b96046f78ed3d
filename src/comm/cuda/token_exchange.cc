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
  Buffer fault;                // pinned ExchangeFault
};

// Every placement's first_replica, then its replicas.
std::vector<int32_t> TableWords(std::span<const ExpertPlacement> placements) {
  std::vector<int32_t> words;
  for (const ExpertPlacement& placement : placements) {
    std::vector<int32_t> replicas;
    for (int32_t logical = 0; logical < placement.num_experts(); ++logical) {
      words.push_back(static_cast<int32_t>(replicas.size()));
      const auto own = placement.replicas(logical);
      replicas.insert(replicas.end(), own.begin(), own.end());
    }
    words.push_back(static_cast<int32_t>(replicas.size()));
    words.insert(words.end(), replicas.begin(), replicas.end());
  }
  return words;
}

class PeerTokenExchange final : public TokenExchange {
 public:
  PeerTokenExchange(Device& device, Group& group, std::shared_ptr<Shared> shared,
                    const ExchangePeers& peers, std::span<const ExpertPlacement> placements,
                    Buffer tables)
      : TokenExchange(group),
        device_(device),
        shared_(std::move(shared)),
        placements_(placements),
        tables_(std::move(tables)) {
    step_.peers = peers;
    const auto* words = reinterpret_cast<const int32_t*>(tables_.data());
    for (const ExpertPlacement& placement : placements) {
      const int32_t* replicas = words + placement.num_experts() + 1;
      table_of_.push_back({words, replicas});
      words = replicas + placement.num_physical();
    }
  }

  const int32_t* ChooseReplicas(Stream stream, Workspace& workspace,
                                const ChooseReplicasArgs& args) override {
    const int64_t count = args.shape.num_elements();
    int32_t* physical = workspace.TakeArray<int32_t>(count);
    if (count > 0) {
      ChooseReplicaOf(stream, table_of_[IndexOf(*args.placement)], args, rank(), physical);
    }
    return physical;
  }

  void PlacementsChanged() override {
    const std::vector<int32_t> words = TableWords(placements_);
    CHECK_EQ(words.size() * sizeof(int32_t), tables_.size());
    device_.Upload(tables_.data(), words.data(), tables_.size());
    device_.FinishLoading();
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

  Device& device_;
  const std::shared_ptr<Shared> shared_;
  const std::span<const ExpertPlacement> placements_;
  const Buffer tables_;                 // TableWords on the device
  std::vector<ReplicaTable> table_of_;  // as placements, into tables_
  ExchangeStep step_;                   // of the exchange under way
};

}  // namespace

Result<std::vector<std::unique_ptr<TokenExchange>>> MakePeerExchange(
    std::span<Device* const> devices, std::span<const std::unique_ptr<Group>> group,
    std::span<const ExpertPlacement> placements) {
  const DeviceScope restore;
  auto shared = std::make_shared<Shared>();
  const std::vector<int32_t> words = TableWords(placements);
  std::vector<Buffer> tables;
  const ExchangeMemory cleared = {};
  for (size_t r = 0; r < devices.size(); ++r) {
    Device& device = *devices[r];
    ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(device, sizeof(ExchangeMemory)));
    CUDA_CHECK(&device, cudaSetDevice(DeviceIndexOf(memory.data())));
    LoadExchangeKernels(&device);
    device.Upload(memory.data(), &cleared, sizeof(cleared));
    ASSIGN_OR_RETURN(Buffer placed, Buffer::Allocate(device, words.size() * sizeof(int32_t)));
    device.Upload(placed.data(), words.data(), placed.size());
    device.FinishLoading();
    shared->memory.push_back(std::move(memory));
    tables.push_back(std::move(placed));
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
    exchanges.push_back(std::make_unique<PeerTokenExchange>(*devices[r], *group[r], shared, peers,
                                                            placements, std::move(tables[r])));
  }
  return exchanges;
}

}  // namespace hayate::comm::cuda
