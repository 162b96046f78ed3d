#pragma once
// Runs a model on 1 to n ranks as threads, with page tables of its own: what exec does, in the
// small, for tests and benches. Not thread-safe.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/align.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/thread.h"
#include "comm/rank_layout.h"
#include "models/expert_shape.h"
#include "models/registry.h"

namespace hayate::models::testing {

struct RunnerOptions {
  DeviceKind device = DeviceKind::kCpu;
  int num_ranks = 1;  // CUDA: 1
  // As comm::RankLayoutOptions. Sequence s is of dp rank s mod dp_size.
  int dp_size = 1;
  int ep_size = 0;
  int num_redundant_experts = 0;
  ops::MatmulPrecision precision = ops::MatmulPrecision::kExact;
  DType kv_dtype = DType::kF32;
  ops::LatentForm latent_form = ops::LatentForm::kAbsorbed;
  WindowReuse window_reuse = WindowReuse::kStored;
  int32_t page_tokens = 16;
  int32_t max_context = 0;
  int32_t num_pages = 64;
  int32_t max_tokens = 64;  // per step
  bool pin = false;         // rank r on core r
};

enum class WantedLogits : uint8_t { kLast, kAll, kNone };

// One sequence's tokens of a step: positions continue where the sequence stands.
struct RunnerRow {
  int sequence = 0;
  std::vector<int32_t> tokens;
  WantedLogits logits = WantedLogits::kLast;
};

class ModelRunner {
 public:
  static Result<std::unique_ptr<ModelRunner>> Create(const weights::Checkpoint& checkpoint,
                                                     const RunnerOptions& options) {
    ASSIGN_OR_RETURN(const comm::RankLayout layout,
                     comm::RankLayout::Create({.num_ranks = options.num_ranks,
                                               .dp_size = options.dp_size,
                                               .ep_size = options.ep_size}));
    auto runner = std::unique_ptr<ModelRunner>(new ModelRunner(options, layout));
    if (layout.exchanges()) RETURN_IF_ERROR(runner->PlaceExperts(checkpoint));
    std::vector<Status> failures(static_cast<size_t>(options.num_ranks));
    runner->OnEveryRank([&](int rank) {
      failures[static_cast<size_t>(rank)] = runner->ranks_[static_cast<size_t>(rank)].Load(
          checkpoint, options, runner->LoadOptionsOf(rank));
    });
    for (const Status& status : failures) RETURN_IF_ERROR(status);
    return runner;
  }
  ~ModelRunner() = default;

  const Model& model() const { return *ranks_[0].model; }
  const Model& model(int rank) const { return *ranks_[static_cast<size_t>(rank)].model; }
  int vocab_size() const { return model().facts().vocab_size; }
  // A model may round the wanted page size up.
  int page_tokens() const { return model().cache_layout().page_tokens; }

  // One step over the rows. Logits of the wanted tokens, row by row: [L, V].
  const std::vector<float>& Step(const std::vector<RunnerRow>& rows) {
    Prepare(rows);
    OnEveryRank([this](int rank) { Run(rank); });
    logits_.clear();
    std::vector<size_t> next(batches_.size(), 0);
    for (const RunnerRow& row : rows) {
      const size_t dp_rank = DpRankOf(row.sequence);
      const size_t count = NumLogits(row) * static_cast<size_t>(vocab_size());
      const auto from = batches_[dp_rank].logits.begin() + static_cast<ptrdiff_t>(next[dp_rank]);
      logits_.insert(logits_.end(), from, from + static_cast<ptrdiff_t>(count));
      next[dp_rank] += count;
    }
    return logits_;
  }
  // Repeats the last step `count` times in one parallel section, for benches. Returns the time of
  // the quickest, ns: what a step costs when nothing else runs.
  int64_t Repeat(int count) {
    int64_t quickest = std::numeric_limits<int64_t>::max();
    OnEveryRank([&](int rank) {
      const SteadyClock clock;
      for (int i = 0; i < count; ++i) {
        const int64_t begin = clock.NowNs();
        Run(rank);
        if (rank == 0) quickest = std::min(quickest, clock.NowNs() - begin);
      }
    });
    return quickest;
  }

  // Forgets a sequence; its pages are free again.
  void Drop(int sequence) {
    Sequence& state = sequences_[sequence];
    free_pages_.insert(free_pages_.end(), state.pages.begin(), state.pages.end());
    sequences_.erase(sequence);
  }
  int Length(int sequence) { return sequences_[sequence].length; }
  // Zeroes a cache group's pool: what was kept there is lost.
  void Wipe(std::string_view group_name) {
    const auto& groups = model().cache_layout().groups;
    const auto found = std::ranges::find(groups, group_name, &CacheGroup::name);
    CHECK(found != groups.end()) << group_name;
    for (Rank& rank : ranks_) {
      Buffer& pool = rank.buffers[static_cast<size_t>(found - groups.begin())];
      const std::vector<std::byte> zeros(pool.size());
      rank.device->Upload(pool.data(), zeros.data(), zeros.size());
    }
  }
  // A new sequence that has no tokens before `position`.
  void StartAt(int sequence, int32_t position) {
    sequences_[sequence] = {.length = position, .window_begin = position};
  }
  // What is left of a sequence is a cached prefix of its first `settled` tokens, without windows:
  // its next row begins at position `first`, and what prefixes keep is not written again.
  void Replay(int sequence, int32_t first, int32_t settled) {
    Sequence& state = sequences_[sequence];
    CHECK(first <= settled && settled <= state.length && first % page_tokens() == 0);
    state.length = state.window_begin = first;
    state.settled = settled;
  }

  // Where rows travel.
  const comm::TokenExchange& exchange(int rank) const {
    return *exchanges_[static_cast<size_t>(rank)];
  }
  const std::vector<comm::ExpertPlacement>& placements() const { return placements_; }
  // [layers, E], of a rank.
  const std::vector<int64_t>& expert_counts(int rank) const {
    return ranks_[static_cast<size_t>(rank)].expert_counts;
  }

 private:
  struct Rank {
    Status Load(const weights::Checkpoint& checkpoint, const RunnerOptions& options,
                LoadOptions load) {
      if (options.pin) PinThisThread(load.rank);
      if (options.device == DeviceKind::kCpu) {
        device = MakeCpuDevice(load.rank);
      } else {
        ASSIGN_OR_RETURN(device, MakeCudaDevice({.memory_fraction = 0.1}));
      }
      load.device = device.get();
      ASSIGN_OR_RETURN(model, LoadModel(checkpoint, load));
      const int64_t bytes = model->workspace_bytes(options.max_tokens, options.max_tokens);
      ASSIGN_OR_RETURN(Buffer scratch, Buffer::Allocate(*device, static_cast<size_t>(bytes)));
      workspace = std::make_unique<Workspace>(std::move(scratch));
      for (size_t g = 0; g < model->cache_layout().groups.size(); ++g) {
        const int64_t pool = model->page_bytes(static_cast<int>(g)) * options.num_pages;
        ASSIGN_OR_RETURN(
            Buffer buffer,
            Buffer::Allocate(*device, static_cast<size_t>(std::max<int64_t>(pool, 64))));
        // What stale pages hold must not matter: NaN in every float type, garbage in int8.
        const std::vector<std::byte> stale(buffer.size(), std::byte{0xFF});
        device->Upload(buffer.data(), stale.data(), stale.size());
        pools.push_back(buffer.data());
        buffers.push_back(std::move(buffer));
      }
      stream = device->NewStream();
      device->FinishLoading();
      return device->status();
    }
    // A copy in memory of the device; on the CPU the array itself.
    template <typename T>
    T* Placed(T* values, size_t count) {
      if (device->kind() == DeviceKind::kCpu || count == 0) return values;
      placed.push_back(Buffer::Allocate(*device, count * sizeof(T)).value());
      device->Upload(placed.back().data(), values, count * sizeof(T));
      return reinterpret_cast<T*>(placed.back().data());
    }
    // Waits for the stream and brings `count` values back; on the CPU they are there.
    void BringBack(const float* from, float* to, size_t count) {
      if (device->kind() == DeviceKind::kCpu) return;
      const Buffer pinned =
          Buffer::Allocate(*device, count * sizeof(float), MemoryKind::kPinned).value();
      const Event done = device->NewEvent();
      device->Copy(stream, pinned.data(), from, count * sizeof(float));
      device->Record(done, stream);
      device->Synchronize(done);
      std::memcpy(to, pinned.data(), count * sizeof(float));
      while (!placed.empty()) placed.pop_back();  // from the last: the device takes them back so
      CHECK(device->status().ok()) << device->status().message();
    }

    std::unique_ptr<Device> device;
    Stream stream;
    std::unique_ptr<Workspace> workspace;
    std::vector<Buffer> buffers;
    std::vector<Buffer> placed;  // of the step
    std::vector<std::byte*> pools;
    std::unique_ptr<Model> model;
    std::vector<int64_t> expert_counts;
  };
  struct Sequence {
    int length = 0;
    int32_t window_begin = 0, settled = 0;  // as ForwardBatch
    std::vector<int32_t> pages;
  };

  // A dp rank's part of the step.
  struct Batch {
    std::vector<int32_t> tokens, positions, logits_index, q_begin, kv_len, window_begin, settled;
    std::vector<std::vector<int32_t>> page_tables;
    std::vector<ops::AttentionRows> rows;
    std::vector<float> logits;
  };

  ModelRunner(const RunnerOptions& options, const comm::RankLayout& layout)
      : options_(options),
        layout_(layout),
        world_(comm::MakeLocalGroup(options.num_ranks).value()),
        ranks_(static_cast<size_t>(options.num_ranks)),
        batches_(static_cast<size_t>(options.dp_size)),
        tokens_per_rank_(ranks_.size()),
        logits_per_rank_(ranks_.size()) {
    for (int dp_rank = 0; dp_rank < layout.dp_size(); ++dp_rank) {
      auto members = comm::MakeLocalGroup(layout.attention_size()).value();
      for (auto& member : members) groups_.push_back(std::move(member));
    }
    if (layout.exchanges()) exchanges_ = comm::TokenExchange::MakeLocal(world_);
    // Pages are handed out from the back, in an order that is not the order of memory.
    for (int32_t page = 0; page < options.num_pages; ++page) {
      free_pages_.push_back((page * 7 + 3) % options.num_pages);
    }
    std::ranges::sort(free_pages_);
    for (size_t i = 0; i + 2 < free_pages_.size(); i += 3)
      std::swap(free_pages_[i], free_pages_[i + 2]);
  }

  Status PlaceExperts(const weights::Checkpoint& checkpoint) {
    ASSIGN_OR_RETURN(const ExpertShape shape, ReadExpertShape(checkpoint));
    const comm::ExpertPlan plan = {.num_ranks = options_.num_ranks,
                                   .num_redundant = options_.num_redundant_experts};
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      ASSIGN_OR_RETURN(auto placement, plan.Place(layer, shape.num_experts));
      placements_.push_back(std::move(placement));
    }
    for (Rank& rank : ranks_) {
      rank.expert_counts.assign(static_cast<size_t>(shape.num_layers * shape.num_experts), 0);
    }
    return OkStatus();
  }

  LoadOptions LoadOptionsOf(int rank) const {
    return {.rank = layout_.attention_rank(rank),
            .num_ranks = layout_.attention_size(),
            .experts = placements_,
            .expert_rank = rank,
            .precision = options_.precision,
            .kv_dtype = options_.kv_dtype,
            .latent_form = options_.latent_form,
            .page_tokens = options_.page_tokens,
            .max_context = options_.max_context,
            .window_reuse = options_.window_reuse};
  }

  size_t DpRankOf(int sequence) const {
    return static_cast<size_t>(layout_.dp_rank_of_slot(sequence));
  }
  static size_t NumLogits(const RunnerRow& row) {
    if (row.logits == WantedLogits::kNone || row.tokens.empty()) return 0;
    return row.logits == WantedLogits::kLast ? 1 : row.tokens.size();
  }

  void OnEveryRank(const std::function<void(int)>& body) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < options_.num_ranks; ++rank) {
      threads.emplace_back([&body, rank, pin = options_.pin] {
        if (pin) PinThisThread(rank);
        body(rank);
      });
    }
  }

  void Prepare(const std::vector<RunnerRow>& rows) {
    std::vector<int32_t> tokens, logits;
    for (size_t dp_rank = 0; dp_rank < batches_.size(); ++dp_rank) {
      std::vector<RunnerRow> own;
      std::ranges::copy_if(rows, std::back_inserter(own),
                           [&](const RunnerRow& row) { return DpRankOf(row.sequence) == dp_rank; });
      PrepareBatch(own, batches_[dp_rank]);
      tokens.push_back(static_cast<int32_t>(batches_[dp_rank].tokens.size()));
      logits.push_back(static_cast<int32_t>(batches_[dp_rank].logits_index.size()));
    }
    layout_.SplitRows(tokens, tokens_per_rank_);
    layout_.SplitRows(logits, logits_per_rank_);
  }

  void PrepareBatch(const std::vector<RunnerRow>& rows, Batch& batch) {
    batch.tokens.clear();
    batch.positions.clear();
    batch.logits_index.clear();
    batch.q_begin.assign(1, 0);
    batch.kv_len.clear();
    batch.window_begin.clear();
    batch.settled.clear();
    int32_t most_pages = 0;
    for (const RunnerRow& row : rows) {
      Sequence& sequence = sequences_[row.sequence];
      for (size_t i = 0; i < row.tokens.size(); ++i) {
        const bool last = i + 1 == row.tokens.size();
        if (row.logits == WantedLogits::kAll || (last && row.logits == WantedLogits::kLast)) {
          batch.logits_index.push_back(static_cast<int32_t>(batch.tokens.size()));
        }
        batch.tokens.push_back(row.tokens[i]);
        batch.positions.push_back(sequence.length++);
      }
      batch.q_begin.push_back(static_cast<int32_t>(batch.tokens.size()));
      batch.kv_len.push_back(sequence.length);
      batch.window_begin.push_back(sequence.window_begin);
      batch.settled.push_back(sequence.settled);
      while (static_cast<int>(sequence.pages.size()) * page_tokens() < sequence.length) {
        CHECK(!free_pages_.empty()) << "the runner has too few pages";
        sequence.pages.push_back(free_pages_.back());
        free_pages_.pop_back();
      }
      most_pages = std::max(most_pages, static_cast<int32_t>(sequence.pages.size()));
    }
    FillPageTables(rows, most_pages, batch);
    batch.logits.assign(batch.logits_index.size() * static_cast<size_t>(vocab_size()), -1.0f);
  }

  // A window group loses the pages that no token of the step can see any more.
  void FillPageTables(const std::vector<RunnerRow>& rows, int32_t stride, Batch& batch) {
    const auto& groups = model().cache_layout().groups;
    batch.page_tables.assign(groups.size(), {});
    batch.rows.clear();
    for (size_t g = 0; g < groups.size(); ++g) {
      std::vector<int32_t>& table = batch.page_tables[g];
      table.assign(rows.size() * static_cast<size_t>(stride), -1);
      for (size_t r = 0; r < rows.size(); ++r) {
        const Sequence& sequence = sequences_[rows[r].sequence];
        const int first_position = sequence.length - static_cast<int>(rows[r].tokens.size());
        const int first_seen =
            groups[g].window > 0 ? std::max(0, first_position - groups[g].window + 1) : 0;
        for (size_t p = static_cast<size_t>(first_seen / page_tokens()); p < sequence.pages.size();
             ++p) {
          table[r * static_cast<size_t>(stride) + p] = sequence.pages[p];
        }
      }
      batch.rows.push_back({.num_rows = static_cast<int32_t>(rows.size()),
                            .q_begin = batch.q_begin.data(),
                            .kv_len = batch.kv_len.data(),
                            .page_table = table.data(),
                            .page_table_stride = stride});
    }
  }

  void Run(int rank) {
    Rank& mine = ranks_[static_cast<size_t>(rank)];
    Batch& step = batches_[static_cast<size_t>(layout_.dp_rank(rank))];
    std::vector<ops::AttentionRows> rows = step.rows;
    int32_t* q_begin = mine.Placed(step.q_begin.data(), step.q_begin.size());
    int32_t* kv_len = mine.Placed(step.kv_len.data(), step.kv_len.size());
    for (size_t g = 0; g < rows.size(); ++g) {
      rows[g].q_begin = q_begin;
      rows[g].kv_len = kv_len;
      rows[g].page_table = mine.Placed(step.page_tables[g].data(), step.page_tables[g].size());
    }
    const bool replays =
        std::ranges::any_of(step.window_begin, [](int32_t begin) { return begin > 0; }) ||
        std::ranges::any_of(step.settled, [](int32_t end) { return end > 0; });
    const ForwardBatch batch = {
        .num_tokens = static_cast<int32_t>(step.tokens.size()),
        .token_ids = mine.Placed(step.tokens.data(), step.tokens.size()),
        .positions = mine.Placed(step.positions.data(), step.positions.size()),
        .rows = rows,
        .window_begin =
            replays ? mine.Placed(step.window_begin.data(), step.window_begin.size()) : nullptr,
        .settled = replays ? mine.Placed(step.settled.data(), step.settled.size()) : nullptr,
        .num_logits = static_cast<int32_t>(step.logits_index.size()),
        .logits_index = mine.Placed(step.logits_index.data(), step.logits_index.size()),
        .logits = mine.Placed(step.logits.data(), step.logits.size()),
        .tokens_per_rank = tokens_per_rank_,
        .logits_per_rank = logits_per_rank_};
    ForwardContext context = {.stream = mine.stream,
                              .workspace = mine.workspace.get(),
                              .group = groups_[static_cast<size_t>(rank)].get(),
                              .placements = placements_,
                              .expert_counts = mine.expert_counts,
                              .pools = mine.pools};
    if (!exchanges_.empty()) context.exchange = exchanges_[static_cast<size_t>(rank)].get();
    mine.device->FinishLoading();
    mine.model->Forward(batch, context);
    mine.BringBack(batch.logits, step.logits.data(), step.logits.size());
    world_[static_cast<size_t>(rank)]->Barrier({});
  }

  const RunnerOptions options_;
  const comm::RankLayout layout_;
  std::vector<std::unique_ptr<comm::Group>> world_;
  std::vector<std::unique_ptr<comm::Group>> groups_;  // each rank's attention group
  std::vector<std::unique_ptr<comm::TokenExchange>> exchanges_;
  std::vector<comm::ExpertPlacement> placements_;  // per layer
  std::vector<Rank> ranks_;
  std::map<int, Sequence> sequences_;
  std::vector<int32_t> free_pages_;

  // The step.
  std::vector<Batch> batches_;  // per dp rank
  std::vector<int32_t> tokens_per_rank_, logits_per_rank_;
  std::vector<float> logits_;
};

}  // namespace hayate::models::testing
