#pragma once
// Runs a target model with its drafter on 1 to n CPU ranks as threads, or on a GPU: what exec does
// of speculative decoding, in the small, for tests. Sequences have pages of their own; tokens can
// be taken back. Not thread-safe.

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "base/check.h"
#include "models/draft_model.h"

namespace hayate::models::testing {

struct DraftRunnerOptions {
  DeviceKind device = DeviceKind::kCpu;
  int num_ranks = 1;  // CUDA: 1
  DraftKind draft = DraftKind::kNone;
  const weights::Checkpoint* draft_checkpoint = nullptr;  // null: the drafter is in the target's
  int32_t max_drafts = 0;
  ops::MatmulPrecision precision = ops::MatmulPrecision::kExact;
  DType kv_dtype = DType::kF32;
  int32_t page_tokens = 16;
};

// One sequence's tokens of a step: positions continue where the sequence stands.
struct DraftRunnerRow {
  int sequence = 0;
  std::vector<int32_t> tokens;
};

// Which of a row's tokens stand, the token after them, and whether the row wants guesses.
struct CommittedRow {
  int32_t kept = 0;
  int32_t next = 0;
  bool wants_guesses = true;
};

class DraftRunner {
 public:
  static constexpr int32_t kMaxTokens = 320, kPages = 96;

  static Result<std::unique_ptr<DraftRunner>> Create(const weights::Checkpoint& checkpoint,
                                                     const DraftRunnerOptions& options) {
    auto runner = std::unique_ptr<DraftRunner>(new DraftRunner(options));
    std::vector<Status> failures(static_cast<size_t>(options.num_ranks));
    runner->OnEveryRank([&](int rank) {
      failures[static_cast<size_t>(rank)] =
          runner->ranks_[static_cast<size_t>(rank)].Load(checkpoint, options, rank);
    });
    for (const Status& status : failures) RETURN_IF_ERROR(status);
    return runner;
  }

  const Model& model() const { return *ranks_[0].model; }
  const DraftModel& drafter() const { return *ranks_[0].drafter; }
  size_t vocab_size() const { return static_cast<size_t>(model().facts().vocab_size); }
  int32_t page_tokens() const { return model().cache_layout().page_tokens; }

  // Logits of every token [T, V].
  const std::vector<float>& Forward(const std::vector<DraftRunnerRow>& rows) {
    step_ = {};
    for (const DraftRunnerRow& row : rows) {
      Sequence& sequence = sequences_[row.sequence];
      step_.sequences.push_back(row.sequence);
      step_.begins.push_back(sequence.length);
      for (const int32_t token : row.tokens) {
        step_.tokens.push_back(token);
        step_.positions.push_back(sequence.length++);
      }
      step_.q_begin.push_back(static_cast<int32_t>(step_.tokens.size()));
      step_.kv_len.push_back(sequence.length);
      Reserve(sequence, sequence.length + options_.max_drafts);
    }
    logits_.assign(step_.tokens.size() * vocab_size(), -1.0f);
    OnEveryRank([this](int rank) { RunTarget(rank); });
    return logits_;
  }

  // The sequence's last `count` tokens never were.
  void TakeBack(int sequence, int32_t count) { sequences_[sequence].length -= count; }
  int32_t Length(int sequence) { return sequences_[sequence].length; }
  void Drop(int sequence) {
    Sequence& state = sequences_[sequence];
    free_pages_.insert(free_pages_.end(), state.pages.begin(), state.pages.end());
    sequences_.erase(sequence);
  }

  // The drafter takes in what stands of the last Forward's rows.
  void Advance(const std::vector<CommittedRow>& rows) {
    CHECK_EQ(rows.size(), step_.sequences.size());
    Step committed;
    std::vector<int32_t> next_ids, feature_rows, wanting;
    for (size_t r = 0; r < rows.size(); ++r) {
      const int32_t first = step_.q_begin[r], kept = rows[r].kept;
      for (int32_t i = 0; i < kept; ++i) {
        const auto t = static_cast<size_t>(first + i);
        committed.tokens.push_back(step_.tokens[t]);
        committed.positions.push_back(step_.positions[t]);
        next_ids.push_back(i + 1 < kept ? step_.tokens[t + 1] : rows[r].next);
        feature_rows.push_back(first + i);
      }
      if (rows[r].wants_guesses) wanting.push_back(static_cast<int32_t>(r));
      committed.sequences.push_back(step_.sequences[r]);
      committed.begins.push_back(step_.begins[r]);
      committed.q_begin.push_back(static_cast<int32_t>(committed.tokens.size()));
      committed.kv_len.push_back(step_.begins[r] + kept);
    }
    num_wanting_ = wanting.size();
    OnEveryRank([&](int rank) {
      Rank& mine = ranks_[static_cast<size_t>(rank)];
      mine.workspace->ResetTo(0);
      Tables tables(*this, committed, mine.drafter->cache_groups());
      const auto placed_rows = mine.PlacedRows(tables, committed);
      const DraftBatch batch = {.num_tokens = static_cast<int32_t>(committed.tokens.size()),
                                .token_ids = mine.Placed(committed.tokens),
                                .next_ids = mine.Placed(next_ids),
                                .positions = mine.Placed(committed.positions),
                                .feature_rows = mine.Placed(feature_rows),
                                .features = mine.Features(),
                                .rows = placed_rows,
                                .num_proposals = static_cast<int32_t>(wanting.size()),
                                .proposal_rows = mine.Placed(wanting)};
      mine.device->FinishLoading();
      mine.drafter->Advance(batch, Context(mine, rank, mine.draft_pools));
      // What Next needs of the tables was copied to the workspace, but for the pages themselves.
      mine.tables = std::move(tables);
    });
  }

  struct Guess {
    std::vector<float> logits;       // [N, V]
    std::vector<float> confidences;  // [N], of the last rank
  };
  Guess Next(int32_t i, const std::vector<int32_t>& tokens) {
    Guess guess;
    guess.logits.assign(num_wanting_ * vocab_size(), -1.0f);
    std::vector<std::vector<float>> confidences(ranks_.size(),
                                                std::vector<float>(num_wanting_, -1.0f));
    OnEveryRank([&](int rank) {
      Rank& mine = ranks_[static_cast<size_t>(rank)];
      std::vector<float>& sure = confidences[static_cast<size_t>(rank)];
      float* logits = mine.Placed(guess.logits);
      float* placed_sure = mine.Placed(sure);
      const int32_t* placed_tokens = mine.Placed(tokens);
      mine.device->FinishLoading();
      mine.drafter->Next(i, placed_tokens, logits, placed_sure,
                         Context(mine, rank, mine.draft_pools));
      mine.BringBack(logits, guess.logits);
      mine.BringBack(placed_sure, sure);
    });
    for (const auto& of_rank : confidences) CHECK(of_rank == confidences[0]);
    guess.confidences = confidences[0];
    return guess;
  }

 private:
  struct Sequence {
    int32_t length = 0;
    std::vector<int32_t> pages;
  };
  struct Step {
    std::vector<int> sequences;
    std::vector<int32_t> begins;
    std::vector<int32_t> tokens, positions, kv_len;
    std::vector<int32_t> q_begin = {0};
  };
  // The page tables of a step's rows for some groups. A window group has lost the pages that no
  // token of the step can see.
  struct Tables {
    Tables() = default;
    Tables(const DraftRunner& runner, const Step& step, const std::vector<CacheGroup>& groups) {
      const int32_t stride = kPages, page = runner.page_tokens();
      for (const CacheGroup& group : groups) {
        auto& table = pages.emplace_back(step.sequences.size() * kPages, -1);
        for (size_t r = 0; r < step.sequences.size(); ++r) {
          const Sequence& sequence = runner.sequences_.at(step.sequences[r]);
          const int32_t seen =
              group.window > 0 ? std::max(0, step.begins[r] - group.window + 1) : 0;
          for (auto p = static_cast<size_t>(seen / page); p < sequence.pages.size(); ++p) {
            table[r * kPages + p] = sequence.pages[p];
          }
          if (group.kind == CacheKind::kState) table[r * kPages] = sequence.pages[0];
        }
        rows.push_back({.num_rows = static_cast<int32_t>(step.sequences.size()),
                        .q_begin = step.q_begin.data(),
                        .kv_len = step.kv_len.data(),
                        .page_table = table.data(),
                        .page_table_stride = stride});
      }
    }
    std::vector<std::vector<int32_t>> pages;
    std::vector<ops::AttentionRows> rows;
  };
  struct Rank {
    Status Load(const weights::Checkpoint& checkpoint, const DraftRunnerOptions& options,
                int rank) {
      if (options.device == DeviceKind::kCpu) {
        device = MakeCpuDevice(rank);
      } else {
        ASSIGN_OR_RETURN(device, MakeCudaDevice({.memory_fraction = 0.1}));
      }
      const LoadOptions load = {.rank = rank,
                                .num_ranks = options.num_ranks,
                                .device = device.get(),
                                .precision = options.precision,
                                .kv_dtype = options.kv_dtype,
                                .page_tokens = options.page_tokens,
                                .max_drafts = options.max_drafts,
                                .draft = options.draft,
                                .draft_checkpoint = options.draft_checkpoint};
      ASSIGN_OR_RETURN(model, LoadModel(checkpoint, load));
      int64_t bytes = model->workspace_bytes(kMaxTokens, kMaxTokens);
      RETURN_IF_ERROR(AddPools(model->cache_layout().groups, pools));
      if (options.draft != DraftKind::kNone) {
        const auto* own = options.draft_checkpoint;
        ASSIGN_OR_RETURN(drafter, LoadDraftModel(own ? *own : checkpoint, load, *model));
        bytes = std::max(bytes, drafter->workspace_bytes(kMaxTokens, 8));
        RETURN_IF_ERROR(AddPools(drafter->cache_groups(), draft_pools));
      }
      ASSIGN_OR_RETURN(Buffer scratch, Buffer::Allocate(*device, static_cast<size_t>(bytes)));
      workspace = std::make_unique<Workspace>(std::move(scratch));
      stream = device->NewStream();
      const auto feature_bytes = static_cast<size_t>(model->feature_width() * kMaxTokens) * 4;
      ASSIGN_OR_RETURN(features, Buffer::Allocate(*device, feature_bytes));
      Spoil(features);
      device->FinishLoading();
      return device->status();
    }
    void Spoil(const Buffer& buffer) {
      const std::vector<std::byte> stale(buffer.size(), std::byte{0xFF});
      device->Upload(buffer.data(), stale.data(), stale.size());
    }
    float* Features() const {
      return features.size() == 0 ? nullptr : reinterpret_cast<float*>(features.data());
    }
    // A copy in memory of the device; on the CPU the array itself.
    template <typename T>
    T* Placed(const std::vector<T>& values) {
      if (device->kind() == DeviceKind::kCpu || values.empty()) {
        return const_cast<T*>(values.data());
      }
      placed.push_back(Buffer::Allocate(*device, values.size() * sizeof(T)).value());
      device->Upload(placed.back().data(), values.data(), values.size() * sizeof(T));
      return reinterpret_cast<T*>(placed.back().data());
    }
    std::vector<ops::AttentionRows> PlacedRows(const Tables& from, const Step& step) {
      std::vector<ops::AttentionRows> rows = from.rows;
      const int32_t *q_begin = Placed(step.q_begin), *kv_len = Placed(step.kv_len);
      for (size_t g = 0; g < rows.size(); ++g) {
        rows[g].q_begin = q_begin;
        rows[g].kv_len = kv_len;
        rows[g].page_table = Placed(from.pages[g]);
      }
      return rows;
    }
    // Waits for the stream and brings the values back; on the CPU they are there.
    void BringBack(const float* from, std::vector<float>& to) {
      if (device->kind() == DeviceKind::kCpu || to.empty()) return;
      const size_t bytes = to.size() * sizeof(float);
      const Buffer pinned = Buffer::Allocate(*device, bytes, MemoryKind::kPinned).value();
      const Event done = device->NewEvent();
      device->Copy(stream, pinned.data(), from, bytes);
      device->Record(done, stream);
      device->Synchronize(done);
      std::memcpy(to.data(), pinned.data(), bytes);
      CHECK(device->status().ok()) << device->status().message();
    }
    // From the last: the device takes them back so.
    void Unplace() {
      while (!placed.empty()) placed.pop_back();
    }
    // What stale pages hold must not matter: NaN in every float type.
    Status AddPools(const std::vector<CacheGroup>& groups, std::vector<std::byte*>& bases) {
      for (const CacheGroup& group : groups) {
        ASSIGN_OR_RETURN(Buffer pool,
                         Buffer::Allocate(*device, static_cast<size_t>(std::max<int64_t>(
                                                       group.page_bytes * kPages, 64))));
        Spoil(pool);
        bases.push_back(pool.data());
        buffers.push_back(std::move(pool));
      }
      return OkStatus();
    }

    std::unique_ptr<Device> device;
    Stream stream;
    std::unique_ptr<Workspace> workspace;
    std::vector<Buffer> buffers;
    std::vector<Buffer> placed;  // since the last Forward
    std::vector<std::byte*> pools, draft_pools;
    std::unique_ptr<Model> model;
    std::unique_ptr<DraftModel> drafter;
    Buffer features;  // [T, F] f32 of the last step
    Tables tables;    // of the last Advance
  };

  explicit DraftRunner(const DraftRunnerOptions& options)
      : options_(options),
        groups_(comm::MakeLocalGroup(options.num_ranks).value()),
        ranks_(static_cast<size_t>(options.num_ranks)) {
    // Not in the order of memory.
    for (int32_t page = 0; page < kPages; ++page) free_pages_.push_back(page * 7 % kPages);
    std::ranges::sort(free_pages_);
    for (size_t i = 0; i + 2 < free_pages_.size(); i += 3) {
      std::swap(free_pages_[i], free_pages_[i + 2]);
    }
  }

  template <typename Body>
  void OnEveryRank(const Body& body) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < options_.num_ranks; ++rank) {
      threads.emplace_back([&body, rank] { body(rank); });
    }
  }

  void Reserve(Sequence& sequence, int32_t length) {
    while (static_cast<int32_t>(sequence.pages.size()) * page_tokens() < length + 1) {
      CHECK(!free_pages_.empty()) << "the runner has too few pages";
      sequence.pages.push_back(free_pages_.back());
      free_pages_.pop_back();
    }
  }

  ForwardContext Context(Rank& mine, int rank, std::span<std::byte* const> pools) {
    return {.stream = mine.stream,
            .workspace = mine.workspace.get(),
            .group = groups_[static_cast<size_t>(rank)].get(),
            .pools = pools};
  }

  void RunTarget(int rank) {
    Rank& mine = ranks_[static_cast<size_t>(rank)];
    mine.workspace->ResetTo(0);
    mine.Unplace();
    const Tables tables(*this, step_, mine.model->cache_layout().groups);
    const auto rows = mine.PlacedRows(tables, step_);
    const auto tokens = static_cast<int32_t>(step_.tokens.size());
    std::vector<int32_t> every(step_.tokens.size());
    for (int32_t t = 0; t < tokens; ++t) every[static_cast<size_t>(t)] = t;
    const ForwardBatch batch = {.num_tokens = tokens,
                                .token_ids = mine.Placed(step_.tokens),
                                .positions = mine.Placed(step_.positions),
                                .rows = rows,
                                .num_logits = tokens,
                                .logits_index = mine.Placed(every),
                                .logits = mine.Placed(logits_),
                                .features = mine.Features()};
    mine.device->FinishLoading();
    mine.model->Forward(batch, Context(mine, rank, mine.pools));
    mine.BringBack(batch.logits, logits_);
    groups_[static_cast<size_t>(rank)]->Barrier({});
  }

  const DraftRunnerOptions options_;
  std::vector<std::unique_ptr<comm::Group>> groups_;
  std::vector<Rank> ranks_;
  std::map<int, Sequence> sequences_;
  std::vector<int32_t> free_pages_;
  Step step_;
  std::vector<float> logits_;
  size_t num_wanting_ = 0;
};

}  // namespace hayate::models::testing
