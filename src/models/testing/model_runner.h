#pragma once
// Runs a model on 1 to n ranks as threads, with page tables of its own: what exec does, in the
// small, for tests and benches. Not thread-safe.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/align.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/thread.h"
#include "models/registry.h"

namespace hayate::models::testing {

struct RunnerOptions {
  DeviceKind device = DeviceKind::kCpu;
  int num_ranks = 1;  // CUDA: 1
  ops::MatmulPrecision precision = ops::MatmulPrecision::kExact;
  DType kv_dtype = DType::kF32;
  ops::LatentForm latent_form = ops::LatentForm::kAbsorbed;
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
    auto runner = std::unique_ptr<ModelRunner>(new ModelRunner(options));
    std::vector<Status> failures(static_cast<size_t>(options.num_ranks));
    runner->OnEveryRank([&](int rank) {
      failures[static_cast<size_t>(rank)] =
          runner->ranks_[static_cast<size_t>(rank)].Load(checkpoint, options, rank);
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

 private:
  struct Rank {
    Status Load(const weights::Checkpoint& checkpoint, const RunnerOptions& options, int rank) {
      if (options.pin) PinThisThread(rank);
      if (options.device == DeviceKind::kCpu) {
        device = MakeCpuDevice(rank);
      } else {
        ASSIGN_OR_RETURN(device, MakeCudaDevice({.memory_fraction = 0.1}));
      }
      ASSIGN_OR_RETURN(model, LoadModel(checkpoint, {.rank = rank,
                                                     .num_ranks = options.num_ranks,
                                                     .device = device.get(),
                                                     .precision = options.precision,
                                                     .kv_dtype = options.kv_dtype,
                                                     .latent_form = options.latent_form,
                                                     .page_tokens = options.page_tokens,
                                                     .max_context = options.max_context}));
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
  };
  struct Sequence {
    int length = 0;
    std::vector<int32_t> pages;
  };

  explicit ModelRunner(const RunnerOptions& options)
      : options_(options),
        groups_(comm::MakeLocalGroup(options.num_ranks).value()),
        ranks_(static_cast<size_t>(options.num_ranks)) {
    // Pages are handed out from the back, in an order that is not the order of memory.
    for (int32_t page = 0; page < options.num_pages; ++page) {
      free_pages_.push_back((page * 7 + 3) % options.num_pages);
    }
    std::ranges::sort(free_pages_);
    for (size_t i = 0; i + 2 < free_pages_.size(); i += 3)
      std::swap(free_pages_[i], free_pages_[i + 2]);
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
    tokens_.clear();
    positions_.clear();
    logits_index_.clear();
    q_begin_.assign(1, 0);
    kv_len_.clear();
    int32_t most_pages = 0;
    for (const RunnerRow& row : rows) {
      Sequence& sequence = sequences_[row.sequence];
      for (size_t i = 0; i < row.tokens.size(); ++i) {
        const bool last = i + 1 == row.tokens.size();
        if (row.logits == WantedLogits::kAll || (last && row.logits == WantedLogits::kLast)) {
          logits_index_.push_back(static_cast<int32_t>(tokens_.size()));
        }
        tokens_.push_back(row.tokens[i]);
        positions_.push_back(sequence.length++);
      }
      q_begin_.push_back(static_cast<int32_t>(tokens_.size()));
      kv_len_.push_back(sequence.length);
      while (static_cast<int>(sequence.pages.size()) * page_tokens() < sequence.length) {
        CHECK(!free_pages_.empty()) << "the runner has too few pages";
        sequence.pages.push_back(free_pages_.back());
        free_pages_.pop_back();
      }
      most_pages = std::max(most_pages, static_cast<int32_t>(sequence.pages.size()));
    }
    FillPageTables(rows, most_pages);
    logits_.assign(logits_index_.size() * static_cast<size_t>(vocab_size()), -1.0f);
  }

  // A window group loses the pages that no token of the step can see any more.
  void FillPageTables(const std::vector<RunnerRow>& rows, int32_t stride) {
    const auto& groups = model().cache_layout().groups;
    page_tables_.assign(groups.size(), {});
    rows_.clear();
    for (size_t g = 0; g < groups.size(); ++g) {
      page_tables_[g].assign(rows.size() * static_cast<size_t>(stride), -1);
      for (size_t r = 0; r < rows.size(); ++r) {
        const Sequence& sequence = sequences_[rows[r].sequence];
        const int first_position = sequence.length - static_cast<int>(rows[r].tokens.size());
        const int first_seen =
            groups[g].window > 0 ? std::max(0, first_position - groups[g].window + 1) : 0;
        for (size_t p = static_cast<size_t>(first_seen / page_tokens()); p < sequence.pages.size();
             ++p) {
          page_tables_[g][r * static_cast<size_t>(stride) + p] = sequence.pages[p];
        }
      }
      rows_.push_back({.num_rows = static_cast<int32_t>(rows.size()),
                       .q_begin = q_begin_.data(),
                       .kv_len = kv_len_.data(),
                       .page_table = page_tables_[g].data(),
                       .page_table_stride = stride});
    }
  }

  void Run(int rank) {
    Rank& mine = ranks_[static_cast<size_t>(rank)];
    std::vector<ops::AttentionRows> rows = rows_;
    int32_t* q_begin = mine.Placed(q_begin_.data(), q_begin_.size());
    int32_t* kv_len = mine.Placed(kv_len_.data(), kv_len_.size());
    for (size_t g = 0; g < rows.size(); ++g) {
      rows[g].q_begin = q_begin;
      rows[g].kv_len = kv_len;
      rows[g].page_table = mine.Placed(page_tables_[g].data(), page_tables_[g].size());
    }
    const ForwardBatch batch = {
        .num_tokens = static_cast<int32_t>(tokens_.size()),
        .token_ids = mine.Placed(tokens_.data(), tokens_.size()),
        .positions = mine.Placed(positions_.data(), positions_.size()),
        .rows = rows,
        .num_logits = static_cast<int32_t>(logits_index_.size()),
        .logits_index = mine.Placed(logits_index_.data(), logits_index_.size()),
        .logits = mine.Placed(logits_.data(), logits_.size())};
    mine.device->FinishLoading();
    mine.model->Forward(batch, {.stream = mine.stream,
                                .workspace = mine.workspace.get(),
                                .group = groups_[static_cast<size_t>(rank)].get(),
                                .pools = mine.pools});
    mine.BringBack(batch.logits, logits_.data(), logits_.size());
    groups_[static_cast<size_t>(rank)]->Barrier({});
  }

  const RunnerOptions options_;
  std::vector<std::unique_ptr<comm::Group>> groups_;
  std::vector<Rank> ranks_;
  std::map<int, Sequence> sequences_;
  std::vector<int32_t> free_pages_;

  // The step.
  std::vector<int32_t> tokens_, positions_, logits_index_, q_begin_, kv_len_;
  std::vector<std::vector<int32_t>> page_tables_;
  std::vector<ops::AttentionRows> rows_;
  std::vector<float> logits_;
};

}  // namespace hayate::models::testing
