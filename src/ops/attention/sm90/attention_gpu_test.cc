#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/align.h"
#include "base/rng.h"
#include "ops/attention/attention_plan.h"
#include "ops/attention/kernels.h"
#include "ops/attention/kv_layout.h"
#include "ops/attention/sm90/launch.h"
#include "ops/testing/gpu.h"
#include "tensor/buffer.h"
#include "tensor/float16.h"

namespace hayate::ops {
namespace {

struct Config {
  DType cache = DType::kBF16;
  DType activations = DType::kBF16;
  int32_t page_tokens = 64;
  int32_t num_heads = 8;
  int32_t num_kv_heads = 2;
  int32_t head_dim = 128;
  int32_t group_size = 4;
  int32_t group_offset = 0;
  int32_t window = 0;
  float soft_cap = 0.0f;
  bool sinks = false;

  std::string ToString() const {
    return std::string(Info(cache).name) + " cache " + std::string(Info(activations).name) + " P " +
           std::to_string(page_tokens) + " D " + std::to_string(head_dim) + " heads " +
           std::to_string(num_heads) + "/" + std::to_string(num_kv_heads) + " group " +
           std::to_string(group_size) + " offset " + std::to_string(group_offset) + " window " +
           std::to_string(window) + (sinks ? " sinks" : "") + (soft_cap > 0 ? " cap" : "");
  }
};

// Row r computes positions [begin, end) of its own sequence.
struct Row {
  int32_t begin, end;
};

float Rounded(DType dtype, float x) {
  switch (dtype) {
    case DType::kBF16:
      return Bf16ToFloat(FloatToBf16(x));
    case DType::kF16:
      return F16ToFloat(FloatToF16(x));
    case DType::kF8E4M3:
      return F8E4M3ToFloat(FloatToF8E4M3(x));
    default:
      return x;
  }
}

// Floats as activations of `dtype`.
std::vector<std::byte> Encoded(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(Info(dtype).block_bytes));
  if (dtype == DType::kF32) std::memcpy(bytes.data(), values.data(), bytes.size());
  auto* words = reinterpret_cast<uint16_t*>(bytes.data());
  for (size_t i = 0; dtype == DType::kBF16 && i < values.size(); ++i) {
    words[i] = FloatToBf16(values[i]);
  }
  return bytes;
}

double RelativeError(const std::vector<float>& out, const std::vector<float>& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const double d = static_cast<double>(out[i]) - static_cast<double>(expected[i]);
    difference += d * d;
    norm += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  return std::sqrt(difference / norm);
}

// A step over random sequences whose pages lie shuffled in a pool; memory that was never written is
// NaN, on the host and on the device. The host keeps the cache in fp32, rounded as the device does.
class Step {
 public:
  Step(const Config& config, std::vector<Row> rows, uint64_t seed)
      : config_(config), rows_(std::move(rows)), rng_(seed) {
    int32_t pages = 0;
    for (const Row& row : rows_) {
      q_begin_.push_back(q_begin_.back() + row.end - row.begin);
      kv_len_.push_back(row.end);
      stride_ = std::max(stride_, CeilDiv(row.end, config.page_tokens));
      pages += CeilDiv(row.end, config.page_tokens);
    }
    num_pages_ = pages + 1;
    std::vector<int32_t> free;
    for (int32_t page = 0; page < num_pages_; ++page) free.push_back(page);
    for (const Row& row : rows_) {
      for (int32_t i = 0; i < stride_; ++i) {
        const int32_t last = (i + 1) * config.page_tokens - 1;
        const bool used = i * config.page_tokens < row.end;
        const bool dropped = config.window > 0 && last <= row.begin - config.window;
        const size_t pick = rng_.Below(static_cast<uint32_t>(free.size()));
        full_table_.push_back(used ? free[pick] : -1);
        table_.push_back(used && !dropped ? free[pick] : -1);
        if (used) free.erase(free.begin() + static_cast<ptrdiff_t>(pick));
      }
    }
    if (config.sinks) AppendNormal(config.num_heads, DType::kF32, &sinks_);
    for (const Row& row : rows_) {
      // A row's numbers do not depend on the rows after it.
      rng_ = Rng(seed * 1000 + q_.size());
      AppendNormal((row.end - row.begin) * q_width(), config.activations, &q_);
      AppendNormal(row.end * kv_width(), config.activations, &k_);
      AppendNormal(row.end * kv_width(), config.activations, &v_);
    }
  }

  int64_t tokens() const { return q_begin_.back(); }
  int64_t q_width() const { return int64_t{config_.num_heads} * config_.head_dim; }
  int64_t kv_width() const { return int64_t{config_.num_kv_heads} * config_.head_dim; }
  int64_t page_bytes(DType dtype) const {
    return KvLayerPageBytes(dtype, config_.page_tokens, config_.num_kv_heads, config_.head_dim);
  }
  AttentionRows HostRows(const std::vector<int32_t>& q_begin,
                         const std::vector<int32_t>& table) const {
    return {.num_rows = static_cast<int32_t>(rows_.size()),
            .q_begin = q_begin.data(),
            .kv_len = kv_len_.data(),
            .page_table = table.data(),
            .page_table_stride = stride_};
  }

  std::vector<float> Reference() const {
    std::vector<float> pool(static_cast<size_t>(num_pages_ * page_bytes(DType::kF32) / 4),
                            std::numeric_limits<float>::quiet_NaN());
    std::vector<float> k = k_, v = v_;
    for (float& x : k) x = Rounded(config_.cache, x);
    for (float& x : v) x = Rounded(config_.cache, x);
    const auto [q_begin, positions] = History();
    const KvLayerView cache{reinterpret_cast<std::byte*>(pool.data()),
                            page_bytes(DType::kF32),
                            DType::kF32,
                            config_.page_tokens,
                            config_.num_kv_heads,
                            config_.head_dim};
    const Shape shape{q_begin.back(), config_.num_kv_heads, config_.head_dim};
    attention::KvWriteWith(attention::PlainKernels(),
                           {.k = {reinterpret_cast<std::byte*>(k.data()), DType::kF32, shape},
                            .v = {reinterpret_cast<std::byte*>(v.data()), DType::kF32, shape},
                            .k_row_stride = kv_width(),
                            .v_row_stride = kv_width(),
                            .positions = positions.data(),
                            .rows = HostRows(q_begin, full_table_),
                            .cache = cache});
    std::vector<float> out(q_.size());
    PagedAttentionReference(Args(reinterpret_cast<std::byte*>(out.data()),
                                 reinterpret_cast<const std::byte*>(q_.data()), DType::kF32,
                                 HostRows(q_begin_, table_), cache, sinks_.data()));
    return out;
  }

  // q_begin and positions of a step that writes every position of every row.
  std::pair<std::vector<int32_t>, std::vector<int32_t>> History() const {
    std::vector<int32_t> q_begin = {0}, positions;
    for (const Row& row : rows_) {
      for (int32_t s = 0; s < row.end; ++s) positions.push_back(s);
      q_begin.push_back(q_begin.back() + row.end);
    }
    return {q_begin, positions};
  }

  PagedAttentionArgs Args(std::byte* out, const std::byte* q, DType dtype,
                          const AttentionRows& rows, const KvLayerView& cache,
                          const float* sinks) const {
    const Shape shape{tokens(), config_.num_heads, config_.head_dim};
    return {.out = {out, dtype, shape},
            .q = {q, dtype, shape},
            .q_row_stride = q_width(),
            .rows = rows,
            .cache = cache,
            .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
            .group_size = config_.group_size,
            .group_offset = config_.group_offset,
            .window = config_.window,
            .soft_cap = config_.soft_cap,
            .sinks = config_.sinks ? sinks : nullptr};
  }

  AttentionPlanShape PlanShape(SplitRule split) const {
    return {.num_q_heads = config_.num_heads,
            .num_kv_heads = config_.num_kv_heads,
            .group_size = config_.group_size,
            .group_offset = config_.group_offset,
            .head_dim = config_.head_dim,
            .page_tokens = config_.page_tokens,
            .activations = config_.activations,
            .cache = config_.cache,
            .window = config_.window,
            .max_rows = static_cast<int32_t>(rows_.size()),
            .max_tokens = static_cast<int32_t>(tokens()),
            .split = split};
  }

  const Config config_;
  const std::vector<Row> rows_;
  Rng rng_;
  std::vector<int32_t> q_begin_ = {0}, kv_len_, full_table_, table_;
  int32_t stride_ = 0, num_pages_ = 0;
  std::vector<float> q_, k_, v_, sinks_;

 private:
  void AppendNormal(int64_t count, DType dtype, std::vector<float>* to) {
    for (int64_t i = 0; i < count; ++i) to->push_back(Rounded(dtype, rng_.NextNormal() * 1.5f));
  }
};

class AttentionGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = MakeCudaDevice({.memory_fraction = 0.2});
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = std::move(device).value();
    stream_ = device_->load_stream();
  }

  Buffer ToDevice(const void* data, size_t bytes) {
    Buffer buffer = Buffer::Allocate(*device_, std::max<size_t>(bytes, 16)).value();
    if (bytes > 0) device_->Upload(buffer.data(), data, bytes);
    return buffer;
  }
  template <typename T>
  Buffer ToDevice(const std::vector<T>& values) {
    return ToDevice(values.data(), values.size() * sizeof(T));
  }
  std::vector<std::byte> FromDevice(const Buffer& buffer) {
    Buffer back = Buffer::Allocate(*device_, buffer.size(), MemoryKind::kPinned).value();
    device_->Copy(stream_, back.data(), buffer.data(), buffer.size());
    device_->FinishLoading();
    EXPECT_TRUE(device_->status().ok()) << device_->status().message();
    return {back.data(), back.data() + buffer.size()};
  }

  Buffer Poisoned(int64_t bytes) {
    return ToDevice(std::vector<uint8_t>(static_cast<size_t>(bytes), 0xFF));
  }

  KvLayerView CacheView(const Step& step, const Buffer& pool) {
    return {pool.data(),
            step.page_bytes(step.config_.cache),
            step.config_.cache,
            step.config_.page_tokens,
            step.config_.num_kv_heads,
            step.config_.head_dim};
  }
  AttentionRows DeviceRows(const Step& step, const Buffer& q_begin, const Buffer& kv_len,
                           const Buffer& table) {
    AttentionRows rows = step.HostRows(step.q_begin_, step.table_);
    rows.q_begin = reinterpret_cast<const int32_t*>(q_begin.data());
    rows.kv_len = reinterpret_cast<const int32_t*>(kv_len.data());
    rows.page_table = reinterpret_cast<const int32_t*>(table.data());
    return rows;
  }

  // The whole history of every row, written by KvWrite into a poisoned pool.
  Buffer WrittenPool(const Step& step) {
    Buffer pool = Poisoned(step.num_pages_ * step.page_bytes(step.config_.cache));
    const auto [q_begin, positions] = step.History();
    const Buffer k = ToDevice(Encoded(step.config_.activations, step.k_));
    const Buffer v = ToDevice(Encoded(step.config_.activations, step.v_));
    const Buffer begin = ToDevice(q_begin), length = ToDevice(step.kv_len_),
                 table = ToDevice(step.full_table_), position = ToDevice(positions);
    const Shape shape{q_begin.back(), step.config_.num_kv_heads, step.config_.head_dim};
    KvWrite(stream_, {.k = {k.data(), step.config_.activations, shape},
                      .v = {v.data(), step.config_.activations, shape},
                      .k_row_stride = step.kv_width(),
                      .v_row_stride = step.kv_width(),
                      .positions = reinterpret_cast<const int32_t*>(position.data()),
                      .rows = DeviceRows(step, begin, length, table),
                      .cache = CacheView(step, pool)});
    device_->FinishLoading();
    return pool;
  }

  // The plan's staged arrays and scratch on the device, and rows that carry it.
  struct PlannedRows {
    Buffer staged, scratch;
    AttentionPlan plan;
  };
  PlannedRows Plan(const Step& step, SplitRule split) {
    const AttentionPlanShape shape = step.PlanShape(split);
    const int64_t bytes = PlanStagedBytes(shape, shape.max_rows, shape.max_tokens);
    PlannedRows planned;
    std::vector<std::byte> host(static_cast<size_t>(bytes));
    planned.scratch = ToDevice(
        std::vector<std::byte>(static_cast<size_t>(PlanScratchBytes(shape)), std::byte{0}));
    planned.staged = Poisoned(bytes);
    planned.plan = PlanAttention(shape, {step.q_begin_, step.kv_len_, {}}, host.data(),
                                 planned.staged.data(), planned.scratch.data());
    device_->Upload(planned.staged.data(), host.data(),
                    static_cast<size_t>(planned.plan.staged_bytes));
    return planned;
  }
  // The tiles of a plan as so many parts each, one after the other with decode.
  PlannedRows InParts(const Step& step, int32_t parts) {
    PlannedRows planned = Plan(step, SplitRule::kByPosition);
    AttentionPlan& plan = planned.plan;
    plan.beside = false;  // which whole tiles may be
    plan.prefill_pairs = false;
    plan.prefill_parts = parts;
    return planned;
  }
  std::vector<float> RunPlanned(const Step& step, SplitRule split) {
    return RunPlanned(step, Plan(step, split));
  }
  std::vector<float> RunPlanned(const Step& step, const PlannedRows& planned) {
    return Run(step, [&](PagedAttentionArgs args) {
      args.rows.plan = planned.plan;
      sm90::PagedAttention(stream_, args);  // leaves the counters as it found them
      sm90::PagedAttention(stream_, args);
    });
  }

  // The step's attention on the device, by the kernel that `attend` launches.
  template <typename Attend>
  std::vector<float> Run(const Step& step, const Attend& attend) {
    const Buffer pool = WrittenPool(step);
    const DType dtype = step.config_.activations;
    const Buffer q = ToDevice(Encoded(dtype, step.q_)), sinks = ToDevice(step.sinks_);
    const Buffer begin = ToDevice(step.q_begin_), length = ToDevice(step.kv_len_),
                 table = ToDevice(step.table_);
    const Buffer out = Poisoned(static_cast<int64_t>(step.q_.size()) * Info(dtype).block_bytes);
    attend(step.Args(out.data(), q.data(), dtype, DeviceRows(step, begin, length, table),
                     CacheView(step, pool), reinterpret_cast<const float*>(sinks.data())));
    return testing::Floats(FromDevice(out), dtype);
  }

  std::unique_ptr<Device> device_;
  Stream stream_;
};

// bf16 outputs round by 2⁻⁹; the fast kernels round weights to 8 bits of mantissa as well.
double Tolerance(const Config& config) { return config.activations == DType::kF32 ? 2e-5 : 6e-3; }

std::vector<Config> Configs() {
  std::vector<Config> configs;
  for (const DType cache : {DType::kBF16, DType::kF8E4M3, DType::kF16, DType::kF32}) {
    for (const DType activations : {DType::kBF16, DType::kF32}) {
      configs.push_back({.cache = cache, .activations = activations});
      configs.push_back({.cache = cache, .activations = activations, .window = 100, .sinks = true});
    }
    configs.push_back({.cache = cache, .soft_cap = 3.0f});
    for (const int32_t d : {64, 80, 96, 256}) configs.push_back({.cache = cache, .head_dim = d});
    configs.push_back({.cache = cache, .num_heads = 16, .num_kv_heads = 1, .group_size = 16});
    configs.push_back({.cache = cache, .num_heads = 3, .num_kv_heads = 3, .group_size = 1});
    configs.push_back({.cache = cache, .num_heads = 9, .num_kv_heads = 3, .group_size = 3});
    configs.push_back({.cache = cache, .num_heads = 4, .group_offset = 2});
  }
  configs.push_back({.page_tokens = 16, .window = 33});
  configs.push_back({.page_tokens = 5});
  configs.push_back({.num_heads = 40, .num_kv_heads = 1, .head_dim = 24, .group_size = 40});
  configs.push_back({.window = 1});
  configs.push_back({.window = 33});  // the last block begins with a dropped page
  return configs;
}

TEST_F(AttentionGpuTest, TheSimpleKernelMatchesTheDefinition) {
  uint64_t seed = 1;
  for (const Config& config : Configs()) {
    const Step step(config, {{100, 130}, {0, 1}, {0, 33}, {5, 5}, {31, 64}, {299, 300}}, ++seed);
    const auto out =
        Run(step, [&](const PagedAttentionArgs& args) { sm90::SimpleAttention(stream_, args); });
    EXPECT_LT(RelativeError(out, step.Reference()), Tolerance(config)) << config.ToString();
  }
}

TEST_F(AttentionGpuTest, ThePlannedKernelsMatchTheDefinition) {
  uint64_t seed = 100;
  for (const Config& config : Configs()) {
    for (const SplitRule split : {SplitRule::kBalanced, SplitRule::kByPosition}) {
      const Step step(config,
                      {{129, 130},
                       {0, 1},
                       {0, 33},
                       {5, 5},
                       {31, 64},
                       {699, 700},
                       {0, 300},
                       {700, 703},
                       {100, 103},
                       {63, 64}},
                      ++seed);
      if (!CanPlan(step.PlanShape(split))) continue;
      EXPECT_LT(RelativeError(RunPlanned(step, split), step.Reference()), Tolerance(config))
          << config.ToString();
    }
  }
}

// Less than a tile of keys, one for every warp of a cluster and more, several clusters a head; rows
// of several tokens, which a step writes.
TEST_F(AttentionGpuTest, AStepOfOneRowMatchesTheDefinition) {
  uint64_t seed = 300;
  for (const Config& config : Configs()) {
    for (const Row row : {Row{0, 1}, Row{30, 32}, Row{32, 33}, Row{63, 64}, Row{1023, 1024},
                          Row{1024, 1025}, Row{1029, 1031}, Row{2500, 2503}, Row{4999, 5000}}) {
      const Step step(config, {row}, ++seed);
      if (!CanPlan(step.PlanShape(SplitRule::kBalanced))) continue;
      EXPECT_LT(RelativeError(RunPlanned(step, SplitRule::kBalanced), step.Reference()),
                Tolerance(config))
          << config.ToString() << " tokens " << row.begin << " to " << row.end;
    }
  }
  for (const DType cache : {DType::kBF16, DType::kF8E4M3}) {
    const Config config{.cache = cache, .num_heads = 4, .num_kv_heads = 1};
    for (const int32_t end : {33'000, 70'001}) {
      const Step step(config, {{end - 1, end}}, ++seed);
      EXPECT_LT(RelativeError(RunPlanned(step, SplitRule::kBalanced), step.Reference()),
                Tolerance(config))
          << config.ToString() << " " << end;
    }
  }
}

TEST_F(AttentionGpuTest, PairsOfTilesMatchTheDefinition) {
  uint64_t seed = 200;
  for (const Config& config : {Config{.group_size = 4}, Config{.group_size = 4, .soft_cap = 3.0f},
                               Config{.num_heads = 16, .num_kv_heads = 1, .group_size = 16}}) {
    // An even number of tiles each; pairs that end in one and in two blocks of keys.
    const Step step(config, {{0, 64}, {100, 140}, {700, 764}, {0, 256}, {129, 449}}, ++seed);
    const PlannedRows planned = Plan(step, SplitRule::kByPosition);  // which divides no tile
    ASSERT_TRUE(planned.plan.prefill_pairs) << config.ToString();
    EXPECT_LT(RelativeError(RunPlanned(step, planned), step.Reference()), Tolerance(config))
        << config.ToString();
  }
}

// Every tile in parts, whatever would be faster: tiles with fewer blocks of keys than parts, a
// window that hides some from a part, tiles that are not full, rows of decode besides.
TEST_F(AttentionGpuTest, TilesInPartsMatchTheDefinition) {
  std::vector<Config> configs = {{.num_heads = 16, .num_kv_heads = 1, .group_size = 16},
                                 {.num_heads = 9, .num_kv_heads = 3, .group_size = 3}};
  for (const DType cache : {DType::kBF16, DType::kF8E4M3}) {
    configs.push_back({.cache = cache});
    configs.push_back({.cache = cache, .window = 300, .sinks = true});
    configs.push_back({.cache = cache, .soft_cap = 3.0f});
  }
  const std::vector<std::vector<Row>> steps = {
      {{1127, 1228}},
      {{1023, 1088}, {0, 70}, {1800, 1801}, {40, 43}},
      {{1000, 1025}, {1400, 1401}, {0, 129}, {99, 100}, {383, 400}}};
  uint64_t seed = 500;
  for (const Config& config : configs) {
    for (const std::vector<Row>& rows : steps) {
      const Step step(config, rows, ++seed);
      const std::vector<float> expected = step.Reference();
      for (const int32_t parts : {2, 4}) {
        const PlannedRows planned = InParts(step, parts);
        const std::vector<float> out = RunPlanned(step, planned);
        EXPECT_LT(RelativeError(out, expected), Tolerance(config))
            << config.ToString() << " in parts: " << parts;
        EXPECT_EQ(RunPlanned(step, planned), out) << config.ToString() << " in parts: " << parts;
      }
    }
  }
}

// More clusters than multiprocessors hold at a time, launched again and again: none is still being
// sent to when it ends.
TEST_F(AttentionGpuTest, TilesInPartsHaveTheSameBitsInEveryLaunch) {
  for (const DType cache : {DType::kBF16, DType::kF8E4M3}) {
    const Step step({.cache = cache}, {{300, 1100}, {0, 90}, {900, 901}}, 600);
    for (const int32_t parts : {2, 4}) {
      const PlannedRows planned = InParts(step, parts);
      Run(step, [&](PagedAttentionArgs args) {
        args.rows.plan = planned.plan;
        const size_t bytes = step.q_.size() * sizeof(uint16_t);
        const Buffer poison = Poisoned(static_cast<int64_t>(bytes)),
                     got = Poisoned(static_cast<int64_t>(bytes));
        std::vector<std::byte> first;
        for (int round = 0; round < 30; ++round) {
          device_->Copy(stream_, args.out.data, poison.data(), bytes);
          for (int i = 0; i < 5; ++i) sm90::PagedAttention(stream_, args);
          device_->Copy(stream_, got.data(), args.out.data, bytes);
          const std::vector<std::byte> out = FromDevice(got);
          if (round == 0) first = out;
          ASSERT_EQ(out, first) << "in parts: " << parts << " round " << round;
        }
      });
    }
  }
}

// Neither of the two launches waits for the one before it as a launch alone does: what was written
// right before them must be seen all the same, and their results by what comes after.
TEST_F(AttentionGpuTest, PrefillBesideDecodeSeesWhatTheLaunchBeforeWrote) {
  for (const DType cache : {DType::kBF16, DType::kF8E4M3}) {
    const Config config{
        .cache = cache, .num_heads = 16, .num_kv_heads = 4, .head_dim = 128, .group_size = 4};
    std::vector<Row> rows = {{0, 250}};
    for (int32_t i = 0; i < 60; ++i) rows.push_back({700 + 7 * i, 701 + 7 * i});
    const Step step(config, rows, 400);
    const PlannedRows planned = Plan(step, SplitRule::kByPosition);
    ASSERT_TRUE(planned.plan.beside);
    const std::vector<float> expected = step.Reference();
    const DType dtype = config.activations;
    const auto [all_begin, all_positions] = step.History();
    const Buffer k = ToDevice(Encoded(dtype, step.k_)), v = ToDevice(Encoded(dtype, step.v_)),
                 q = ToDevice(Encoded(dtype, step.q_)), positions = ToDevice(all_positions),
                 history = ToDevice(all_begin), begin = ToDevice(step.q_begin_),
                 length = ToDevice(step.kv_len_), table = ToDevice(step.table_);
    const Shape shape{all_begin.back(), config.num_kv_heads, config.head_dim};
    const auto bytes = static_cast<int64_t>(step.q_.size()) * Info(dtype).block_bytes;
    std::vector<std::byte> first;
    for (int round = 0; round < 20; ++round) {
      const Buffer pool = Poisoned(step.num_pages_ * step.page_bytes(cache));
      const Buffer out = Poisoned(bytes), copy = Poisoned(bytes);
      device_->FinishLoading();
      KvWrite(stream_, {.k = {k.data(), dtype, shape},
                        .v = {v.data(), dtype, shape},
                        .k_row_stride = step.kv_width(),
                        .v_row_stride = step.kv_width(),
                        .positions = reinterpret_cast<const int32_t*>(positions.data()),
                        .rows = DeviceRows(step, history, length, table),
                        .cache = CacheView(step, pool)});
      PagedAttentionArgs args =
          step.Args(out.data(), q.data(), dtype, DeviceRows(step, begin, length, table),
                    CacheView(step, pool), nullptr);
      args.rows.plan = planned.plan;
      sm90::PagedAttention(stream_, args);
      device_->Copy(stream_, copy.data(), out.data(), static_cast<size_t>(bytes));
      const std::vector<std::byte> got = FromDevice(copy);
      if (round == 0) {
        EXPECT_LT(RelativeError(testing::Floats(got, dtype), expected), Tolerance(config));
        first = got;
      }
      EXPECT_EQ(got, first) << round;
    }
  }
}

TEST_F(AttentionGpuTest, ByPositionARowsBitsDoNotDependOnItsNeighbours) {
  for (const DType cache : {DType::kBF16, DType::kF8E4M3}) {
    const Config config{.cache = cache};
    const auto bits = [&](std::vector<Row> rows) {
      const Step step(config, std::move(rows), 5);
      std::vector<float> out = RunPlanned(step, SplitRule::kByPosition);
      out.resize(static_cast<size_t>(config.num_heads * config.head_dim));
      return out;
    };
    EXPECT_EQ(bits({{2999, 3000}}), bits({{2999, 3000}, {0, 100}, {4000, 4001}}));
  }
}

}  // namespace
}  // namespace hayate::ops
