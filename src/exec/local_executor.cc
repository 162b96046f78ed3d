#include "exec/local_executor.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <latch>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "base/align.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/peer_group.h"
#include "comm/peer_token_exchange.h"
#include "exec/local_executor_rank.h"
#include "exec/queued_worker.h"
#include "exec/rank_worker.h"

namespace hayate::exec {
namespace {

// How long a rank spins for the next plan before it sleeps: longer than the engine needs between
// two steps, far shorter than a scheduling quantum.
constexpr int64_t kSpinNs = 50'000;
// While the engine's thread waits for several GPUs: about 2 us between two looks at the first, and
// a tenth of a second at most until a failure of another is seen.
constexpr int kPausesPerPoll = 50;
constexpr int kPollsPerLook = 10'000;
// Ranks that share a GPU: all blocks of their kernels that wait for each other fit side by side.
constexpr int kMaxRanksOfGpu = 4;

int64_t NowNs() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// Blocks until `counter` exceeds `seen`; spins first.
uint64_t AwaitAbove(const std::atomic<uint64_t>& counter, uint64_t seen) {
  uint64_t value = counter.load(std::memory_order_acquire);
  const int64_t deadline = NowNs() + kSpinNs;
  while (value <= seen && NowNs() < deadline) {
    __builtin_ia32_pause();
    value = counter.load(std::memory_order_acquire);
  }
  while (value <= seen) {
    counter.wait(value, std::memory_order_acquire);
    value = counter.load(std::memory_order_acquire);
  }
  return value;
}

}  // namespace

// Ranks start in phases; they meet after each, and the last to arrive does what joins them.
struct LocalExecutor::Startup {
  struct Join {
    LocalExecutor* executor;
    void operator()() noexcept { executor->JoinPhase(); }
  };
  Startup(LocalExecutor* executor, int num_ranks) : meet(num_ranks, Join{executor}) {}

  std::barrier<Join> meet;
  Phase phase = Phase::kOpen;  // changed while all ranks wait
  Status status;               // the same; the first failure of a phase ends the start
  std::mutex open_mutex;       // of ranks that open a GPU that they share, one after the other
  int num_opened = 0;          // under it
  std::latch done{1};
};

LocalExecutor::LocalExecutor(const ExecutorOptions& options) : options_(options) {}

Result<std::unique_ptr<LocalExecutor>> LocalExecutor::Create(const weights::Checkpoint& checkpoint,
                                                             const ExecutorOptions& options) {
  auto executor = std::unique_ptr<LocalExecutor>(new LocalExecutor(options));
  RETURN_IF_ERROR(executor->Start(checkpoint));
  return executor;
}

Status LocalExecutor::Start(const weights::Checkpoint& checkpoint) {
  served_ = &checkpoint;
  if (options_.num_ranks < 1 || options_.num_ranks > comm::kMaxLocalRanks) {
    return Error(ErrorCode::kInvalidArgument, "{} ranks, must be 1 to {}", options_.num_ranks,
                 comm::kMaxLocalRanks);
  }
  ASSIGN_OR_RETURN(layout_of_ranks_, comm::RankLayout::Create({.num_ranks = options_.num_ranks,
                                                               .dp_size = options_.dp_size,
                                                               .ep_size = options_.ep_size}));
  if (options_.device == DeviceKind::kCuda) RETURN_IF_ERROR(CheckDevice());
  RETURN_IF_ERROR(PlaceExperts(checkpoint));
  if (options_.rebalance.interval > 0 && placed_experts_.layers.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "--enable-eplb moves experts where rows travel to them: a mixture of experts with "
                 "--ep-size or --enable-dp-attention");
  }
  startup_ = std::make_unique<Startup>(this, options_.num_ranks);
  for (int i = 0; i < options_.num_ranks; ++i) {
    ranks_.push_back(std::make_unique<Rank>());
    ranks_.back()->index = i;
  }
  for (auto& rank : ranks_) {
    threads_.emplace_back("rank-" + std::to_string(rank->index),
                          [this, &rank = *rank, &checkpoint] { RankMain(rank, checkpoint); });
  }
  startup_->done.wait();
  RETURN_IF_ERROR(startup_->status);
  for (const auto& rank : ranks_) {
    weight_bytes_ += rank->model->weight_bytes();
    if (rank->drafter != nullptr) weight_bytes_ += rank->drafter->weight_bytes();
  }
  return OkStatus();
}

Status LocalExecutor::CheckDevice() const {
  if (options_.num_ranks > comm::kMaxPeerRanks) {
    return Error(ErrorCode::kInvalidArgument, "--tp-size {}: at most {} ranks on GPUs",
                 options_.num_ranks, comm::kMaxPeerRanks);
  }
  if (ranks_share_a_gpu() && options_.num_ranks > kMaxRanksOfGpu) {
    return Error(ErrorCode::kInvalidArgument,
                 "--gpu-id-step 0 with --tp-size {}: at most {} ranks share a GPU",
                 options_.num_ranks, kMaxRanksOfGpu);
  }
  return OkStatus();
}

void LocalExecutor::JoinPhase() {
  Status& status = startup_->status;
  for (const auto& rank : ranks_) {
    if (status.ok()) status = rank->status;
  }
  if (status.ok()) {
    switch (startup_->phase) {
      case Phase::kOpen:
        status = MakeGroups();
        if (status.ok()) status = MakeExpertCounts();
        break;
      case Phase::kLoad:
        status = MakeRebalancer();  // takes memory
        if (status.ok()) status = SizePools();
        break;
      case Phase::kAllocate:
        for (const auto& rank : ranks_) {
          const int first = rank->index - layout_of_ranks_.attention_rank(rank->index);
          rank->worker->ShareWith(*ranks_[static_cast<size_t>(first)]->worker);
        }
        break;
      case Phase::kWarmUp:
      case Phase::kCapture:
        break;
    }
  }
  if (startup_->phase == Phase::kCapture) startup_->done.count_down();
  startup_->phase = static_cast<Phase>(static_cast<int>(startup_->phase) + 1);
}

Status LocalExecutor::MakeGroups() {
  if (options_.device == DeviceKind::kCpu || options_.num_ranks == 1) return MakeCpuGroups();
  return MakeGpuGroups();
}

Status LocalExecutor::MakeGpuGroups() {
  std::vector<Device*> devices;
  for (const auto& rank : ranks_) devices.push_back(rank->device.get());
  ASSIGN_OR_RETURN(auto groups, comm::MakePeerGroup(devices));
  if (!placed_experts_.layers.empty()) {
    ASSIGN_OR_RETURN(auto exchanges,
                     comm::MakePeerExchange(devices, groups, placed_experts_.layers));
    for (size_t i = 0; i < ranks_.size(); ++i) ranks_[i]->exchange = std::move(exchanges[i]);
  }
  for (size_t i = 0; i < ranks_.size(); ++i) ranks_[i]->group = std::move(groups[i]);
  if (layout_of_ranks_.dp_size() == 1) return OkStatus();
  const auto size = static_cast<size_t>(layout_of_ranks_.attention_size());
  for (size_t first = 0; first < ranks_.size();) {
    ASSIGN_OR_RETURN(auto members, comm::MakePeerGroup(std::span(devices).subspan(first, size)));
    for (auto& member : members) ranks_[first++]->attention_group = std::move(member);
  }
  return OkStatus();
}

Status LocalExecutor::MakeCpuGroups() {
  ASSIGN_OR_RETURN(auto groups, comm::MakeLocalGroup(options_.num_ranks));
  if (!placed_experts_.layers.empty()) {
    auto exchanges = comm::TokenExchange::MakeLocal(groups);
    for (size_t i = 0; i < ranks_.size(); ++i) ranks_[i]->exchange = std::move(exchanges[i]);
  }
  for (size_t i = 0; i < ranks_.size(); ++i) ranks_[i]->group = std::move(groups[i]);
  if (layout_of_ranks_.dp_size() == 1) return OkStatus();
  for (size_t first = 0; first < ranks_.size();) {
    ASSIGN_OR_RETURN(auto members, comm::MakeLocalGroup(layout_of_ranks_.attention_size()));
    for (auto& member : members) ranks_[first++]->attention_group = std::move(member);
  }
  return OkStatus();
}

int32_t LocalExecutor::SlotsPerDpRank() const {
  return CeilDiv(options_.max_running, layout_of_ranks_.dp_size());
}

Status LocalExecutor::SizePools() {
  layout_ = ranks_[0]->model->cache_layout();
  if (const auto& drafter = ranks_[0]->drafter) {
    const auto& groups = drafter->cache_groups();
    for (CacheGroup group : groups) {
      // The drafter sees the tokens that are computed again, and so gets its windows back.
      group.replayed = layout_.replay_tokens > 0 && group.kind == CacheKind::kWindow;
      layout_.groups.push_back(std::move(group));
    }
  }
  const CacheLayout& layout = layout_;
  const int32_t context = facts().max_context;
  total_tokens_ = CeilDiv<int64_t>(options_.total_tokens, layout_of_ranks_.dp_size());
  if (total_tokens_ == 0) {
    ASSIGN_OR_RETURN(total_tokens_, LargestPool(layout, PoolBudgetPerRank(), context,
                                                SlotsPerDpRank(), options_.max_step_tokens));
  }
  if (total_tokens_ > kMaxPoolPages * layout.page_tokens) {
    return Error(ErrorCode::kInvalidArgument,
                 "a KV pool of {} tokens is larger than {} pages of {}; lower --max-total-tokens",
                 total_tokens_, kMaxPoolPages, layout.page_tokens);
  }
  total_tokens_ = AlignUp<int64_t>(total_tokens_, layout.page_tokens);
  pool_pages_ = PlanPools(layout, {total_tokens_, SlotsPerDpRank()}, options_.max_step_tokens);
  limits_ = LimitsFor(std::min<int64_t>(context, total_tokens_));
  if (options_.device == DeviceKind::kCpu) {
    logits_.resize(static_cast<size_t>(layout_of_ranks_.dp_size()) *
                   static_cast<size_t>(options_.max_step_logits) *
                   static_cast<size_t>(facts().vocab_size));
    last_tokens_.assign(static_cast<size_t>(options_.max_running), 0);
    guesses_.assign(
        static_cast<size_t>(options_.max_running) * static_cast<size_t>(layout_of_ranks_.dp_size()),
        0);
  }
  return OkStatus();
}

StepLimits LocalExecutor::LimitsFor(int64_t longest_sequence) const {
  const CacheLayout& layout = cache_layout();
  return {.max_rows = options_.max_running,
          .max_tokens = options_.max_step_tokens,
          .max_logits = options_.max_step_logits,
          .page_tokens = layout.page_tokens,
          .max_slot_pages =
              static_cast<int32_t>(CeilDiv<int64_t>(longest_sequence, layout.page_tokens)),
          .num_groups = static_cast<int32_t>(layout.groups.size())};
}

int64_t LocalExecutor::PoolBudgetPerRank() const {
  if (options_.device == DeviceKind::kCpu) return options_.pool_budget_bytes / options_.num_ranks;
  int64_t budget = std::numeric_limits<int64_t>::max();
  for (const auto& rank : ranks_) {
    const int64_t fixed = QueuedWorker::FixedBytes(*rank->model, rank->drafter.get(),
                                                   LimitsFor(rank->model->facts().max_context)) +
                          static_cast<int64_t>(rank->counts_memory.size());
    const auto free = static_cast<int64_t>(rank->device->free_bytes());
    LOG_INFO(
        "{}: weights {:.2f} GiB, workspace and tables {:.2f} GiB, left for the KV pool {:.2f} "
        "GiB",
        rank->device->name(), static_cast<double>(rank->model->weight_bytes()) / 0x1p30,
        static_cast<double>(fixed) / 0x1p30, static_cast<double>(free - fixed) / 0x1p30);
    budget = std::min(budget, free - fixed);
  }
  return std::max<int64_t>(budget, 0);
}

LocalExecutor::~LocalExecutor() {
  stop_at_.store(submitted_.load());
  submitted_.fetch_add(1);  // wakes the ranks; the step it counts is never carried out
  submitted_.notify_all();
  threads_.clear();
  // A group's memory lies on all its devices.
  for (const auto& rank : ranks_) {
    rank->exchange.reset();
    rank->attention_group.reset();
    rank->group.reset();
  }
}

Status LocalExecutor::OpenDevice(Rank& rank) {
  if (options_.device == DeviceKind::kCpu) {
    rank.device = MakeCpuDevice(rank.index);
    return OkStatus();
  }
  CudaDeviceOptions open = {.index = options_.first_gpu + rank.index * options_.gpu_step,
                            .memory_fraction = options_.memory_fraction};
  std::unique_lock lock(startup_->open_mutex, std::defer_lock);
  if (ranks_share_a_gpu()) {
    lock.lock();
    // Of what is free once the ranks before have taken their shares, which are as large.
    const double share = options_.memory_fraction / options_.num_ranks;
    open.memory_fraction = share / (1.0 - share * startup_->num_opened++);
  }
  ASSIGN_OR_RETURN(rank.device, MakeCudaDevice(open));
  return OkStatus();
}

float* LocalExecutor::LogitsOf(const Rank& rank) {
  const int64_t each = int64_t{options_.max_step_logits} * facts().vocab_size;
  return logits_.data() + layout_of_ranks_.dp_rank(rank.index) * each;
}

int32_t* LocalExecutor::GuessesOf(const Rank& rank) {
  return guesses_.data() + ptrdiff_t{layout_of_ranks_.dp_rank(rank.index)} * options_.max_running;
}

Result<std::unique_ptr<Worker>> LocalExecutor::MakeWorker(Rank& rank) {
  if (options_.device == DeviceKind::kCpu) {
    ASSIGN_OR_RETURN(auto worker, RankWorker::Create(*rank.device, *rank.model, rank.attention(),
                                                     limits_, pool_pages_,
                                                     {.logits = LogitsOf(rank),
                                                      .last_tokens = last_tokens_.data(),
                                                      .guesses = GuessesOf(rank)},
                                                     PlaceOf(rank), rank.drafter.get()));
    return std::unique_ptr<Worker>(std::move(worker));
  }
  ASSIGN_OR_RETURN(auto worker, QueuedWorker::Create(*rank.device, *rank.model, rank.attention(),
                                                     {.limits = limits_,
                                                      .max_graph_rows = options_.max_graph_rows,
                                                      .place = PlaceOf(rank)},
                                                     pool_pages_, rank.drafter.get()));
  return std::unique_ptr<Worker>(std::move(worker));
}

void LocalExecutor::RankMain(Rank& rank, const weights::Checkpoint& checkpoint) {
  const auto phase = [&](auto work) {
    if (startup_->status.ok()) rank.status = work();
    startup_->meet.arrive_and_wait();
  };
  phase([&] { return OpenDevice(rank); });
  phase([&] { return LoadRank(rank, checkpoint); });
  phase([&]() -> Status {
    ASSIGN_OR_RETURN(rank.worker, MakeWorker(rank));
    return OkStatus();
  });
  phase([&] { return rank.worker->WarmUp(); });
  phase([&] {
    if (ranks_share_a_gpu()) CaptureAll(rank);
    return rank.device->status();
  });
  if (startup_->status.ok()) ServeSteps(rank);
}

// What a capture allocates waits for a shared GPU, which waits for this rank's next step: none is
// left to idle time there.
void LocalExecutor::CaptureAll(Rank& rank) {
  while (rank.worker->UseIdleTime()) {
  }
}

void LocalExecutor::ServeSteps(Rank& rank) {
  for (uint64_t step = 0;; ++step) {
    while (!ranks_share_a_gpu() && submitted_.load(std::memory_order_acquire) <= step &&
           rank.worker->UseIdleTime()) {
    }
    AwaitAbove(submitted_, step);
    if (step >= stop_at_.load()) return;
    if (replacement_ != nullptr) {
      ReplaceOnRank(rank);
      Complete(rank, step);
      continue;
    }
    const size_t entry = step % kMaxInFlight;
    StepResult& result = results_[entry];
    const int64_t begin_ns = NowNs();
    if (step + 1 == options_.fail_rank_at_step && &rank == ranks_.back().get()) {
      FailOnPurpose(rank);
    }
    if (rebalancer_ != nullptr && rebalancer_->IsDue(step)) {
      rank.worker->AwaitSteps();
      rebalancer_->Rebalance(rank.index);
    }
    rank.worker->Run(plans_[entry], result);
    if (!rank.device->status().ok()) rank.Leave();
    if (rank.index == 0) {
      result.device_ns = NowNs() - begin_ns;
      result.device_start_ns = begin_ns;
      if (options_.device == DeviceKind::kCpu && rank.group->poisoned()) {
        result.status = FailureOf(rank);
      }
    }
    Complete(rank, step);
  }
}

void LocalExecutor::FailOnPurpose(Rank& rank) {
  if (options_.device == DeviceKind::kCpu) return rank.group->Poison();
  rank.device->Fail(Status(ErrorCode::kUnavailable, "cuda: the device failed on purpose"));
}

void LocalExecutor::Complete(Rank& rank, uint64_t step) {
  rank.completed.store(step + 1, std::memory_order_release);
  rank.completed.notify_all();
}

Status LocalExecutor::FailureOf(const Rank& rank) {
  const Status why = rank.exchange == nullptr ? OkStatus() : rank.exchange->failure();
  if (!why.ok()) return why.Under("a rank failed during the step");
  return Status(ErrorCode::kUnavailable, "a rank failed during the step");
}

void LocalExecutor::Submit(const StepPlan& plan) {
  const uint64_t step = submitted_.load(std::memory_order_relaxed);  // written by this thread alone
  CHECK_LT(step - num_taken_, static_cast<uint64_t>(kMaxInFlight));
  const size_t entry = step % kMaxInFlight;
  plans_[entry] = plan;
  StepResult& result = results_[entry];
  result.step = plan.step;
  result.status = OkStatus();
  result.rows.resize(plan.rows.size());
  for (size_t i = 0; i < plan.rows.size(); ++i) result.rows[i].Reset(plan.rows[i].slot);
  submitted_.store(step + 1, std::memory_order_release);
  submitted_.notify_all();
}

StepResult& LocalExecutor::WaitOldest() {
  CHECK_LT(num_taken_, submitted_.load(std::memory_order_relaxed)) << "no step in flight";
  StepResult& result = results_[num_taken_ % kMaxInFlight];
  if (options_.device == DeviceKind::kCpu) {
    AwaitCount(ranks_[0]->completed, num_taken_ + 1);
  } else {
    for (const auto& rank : ranks_) AwaitCount(rank->completed, num_taken_ + 1);
    if (ranks_.size() > 1) result.status = AwaitGpus();
    for (const auto& rank : ranks_) rank->worker->Finish(result);
  }
  ++num_taken_;
  return result;
}

// Mostly the first GPU alone is asked: asking takes locks that the ranks want for their next step.
Status LocalExecutor::AwaitGpus() {
  const auto done = [](const auto& rank) { return rank->worker->Done(); };
  for (int polls = 1; !std::ranges::all_of(ranks_, done); ++polls) {
    for (int i = 0; i < kPausesPerPoll; ++i) __builtin_ia32_pause();
    if (polls % kPollsPerLook != 0) continue;
    // A GPU that fails while its rank sleeps leaves the others' kernels waiting for it.
    for (const auto& rank : ranks_) {
      (void)done(rank);
      if (!rank->device->status().ok()) rank->Leave();
    }
  }
  for (const auto& rank : ranks_) {
    Status status = rank->device->status();
    if (!status.ok()) return status;
  }
  return ranks_[0]->group->poisoned() ? FailureOf(*ranks_[0]) : OkStatus();
}

const models::ModelFacts& LocalExecutor::facts() const { return ranks_[0]->model->facts(); }
int32_t LocalExecutor::draft_lookahead() const {
  const auto& drafter = ranks_[0]->drafter;
  return drafter == nullptr ? 0 : drafter->max_drafts();
}

bool LocalExecutor::gives_hidden() const { return ranks_[0]->model->gives_hidden(); }

int64_t LocalExecutor::pool_bytes() const {
  return PoolBytes(cache_layout(), pool_pages_) * options_.num_ranks;
}

std::string LocalExecutor::device_name() const { return ranks_[0]->device->name(); }

}  // namespace hayate::exec
