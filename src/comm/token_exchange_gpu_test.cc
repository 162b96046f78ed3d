// The exchange between GPUs gives the CPU's results to the bit, for any routing and any rows.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "comm/peer_token_exchange.h"
#include "comm/testing/ranks_on_one_gpu.h"
#include "tensor/float16.h"

namespace hayate::comm {
namespace {

using testing::RanksOnOneGpu;
using testing::Reader;

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr int64_t kMaxWidth = 512;
constexpr int32_t kMaxRows = 100, kMaxChoices = 6;

// A layer's rows on one rank, the same whoever makes them.
struct Rows {
  std::vector<float> x;         // [n, width]
  std::vector<int32_t> chosen;  // [n, K] logical
  std::vector<float> weights;   // [n, K]
};
Rows MakeRows(int rank, int round, int64_t count, int choices, int64_t width, int num_experts) {
  Rng rng(static_cast<uint64_t>(round * 100 + rank));
  Rows rows;
  for (int64_t i = 0; i < count * width; ++i) {
    rows.x.push_back(Bf16ToFloat(FloatToBf16(rng.NextNormal())));
  }
  for (int64_t t = 0; t < count; ++t) {
    std::vector<int32_t> logical(static_cast<size_t>(num_experts));
    std::iota(logical.begin(), logical.end(), 0);
    for (int j = 0; j < choices; ++j) {
      const auto other =
          static_cast<size_t>(j) + rng.Below(static_cast<uint32_t>(std::ssize(logical) - j));
      std::swap(logical[static_cast<size_t>(j)], logical[other]);
      rows.chosen.push_back(logical[static_cast<size_t>(j)]);
      rows.weights.push_back(rng.NextFloat());
    }
  }
  return rows;
}

// Stands for an expert: scales by the expert's number and adds the weight.
void RunExpert(int32_t logical, const float* x, float weight, float* out, int64_t width) {
  for (int64_t i = 0; i < width; ++i) out[i] = x[i] * static_cast<float>(logical + 1) + weight;
}

// What arrived for experts of a rank, in order, and what came back to it.
struct Seen {
  std::vector<int32_t> places;
  std::vector<float> weights, x, back;
  bool operator==(const Seen&) const = default;
};

struct Round {
  int32_t choices = 1;
  int64_t width = 0;
  std::vector<int32_t> counts = {};
  std::vector<Rows> rows = {};  // [ranks]
};

// Of every rank, by the CPU's exchange.
std::vector<Seen> ExpectedOf(const Round& round, const ExpertPlacement& placement) {
  const int num_ranks = placement.num_ranks();
  auto group = MakeLocalGroup(num_ranks).value();
  auto exchanges = TokenExchange::MakeLocal(group);
  const auto device = MakeCpuDevice(0);
  std::vector<Seen> seen(round.rows.size());
  std::vector<std::jthread> threads;
  for (size_t r = 0; r < round.rows.size(); ++r) {
    threads.emplace_back([&, r] {
      Workspace workspace(Buffer::Allocate(*device, kWorkspaceBytes).value());
      const Rows& rows = round.rows[r];
      const int64_t n = round.counts[r], k = round.choices, width = round.width;
      const int32_t* experts = exchanges[r]->ChooseReplicas(
          {}, workspace, {.placement = &placement, .chosen = rows.chosen.data(), .shape = {n, k}});
      const DispatchedRows arrived = exchanges[r]->Dispatch(
          {}, workspace,
          {.x = {reinterpret_cast<const std::byte*>(rows.x.data()), DType::kF32, Shape{n, width}},
           .choices = round.choices,
           .experts = experts,
           .weights = rows.weights.data(),
           .rows = round.counts,
           .placement = &placement});
      const int64_t pairs = arrived.x.rows();
      const TensorView results = workspace.Take(DType::kF32, {pairs, width});
      for (int64_t i = 0; i < pairs; ++i) {
        const auto place = static_cast<size_t>(arrived.places[i]);
        RunExpert(placement.of_rank(static_cast<int>(r))[place], arrived.x.as<float>() + i * width,
                  arrived.weights[i], results.as<float>() + i * width, width);
      }
      seen[r] = {{arrived.places, arrived.places + pairs},
                 {arrived.weights, arrived.weights + pairs},
                 {arrived.x.as<float>(), arrived.x.as<float>() + pairs * width},
                 std::vector<float>(static_cast<size_t>(n * k * width))};
      exchanges[r]->Combine(
          {}, results,
          {reinterpret_cast<std::byte*>(seen[r].back.data()), DType::kF32, {n * k, width}});
      group[r]->Barrier({});
    });
  }
  return seen;
}

// One rank with its memory on the GPU. Everything is allocated before the first exchange.
class Member {
 public:
  Member(Device& device, Stream stream, TokenExchange& exchange)
      : device_(device),
        stream_(stream),
        exchange_(exchange),
        workspace_(Buffer::Allocate(device, kWorkspaceBytes).value()),
        staged_(Buffer::Allocate(device, kMaxBytes, MemoryKind::kPinned).value()),
        reader_(device, kMaxBytes),
        sent_(device.NewEvent()) {}

  Seen Exchange(const Round& round, const ExpertPlacement& placement) {
    const int rank = exchange_.rank();
    const Rows& rows = round.rows[static_cast<size_t>(rank)];
    const int64_t n = round.counts[static_cast<size_t>(rank)], k = round.choices;
    const int64_t width = round.width;
    const size_t mark = workspace_.mark();
    const TensorView x = workspace_.Take(DType::kF32, {n, width});
    const TensorView back = workspace_.Take(DType::kF32, {n * k, width});
    int32_t* chosen = workspace_.TakeArray<int32_t>(n * k);
    float* weights = workspace_.TakeArray<float>(n * k);
    Put(x.data, rows.x);
    Put(chosen, rows.chosen);
    Put(weights, rows.weights);
    Put(back.data, std::vector<float>(static_cast<size_t>(n * k * width), NAN));
    const int32_t* experts = exchange_.ChooseReplicas(
        stream_, workspace_, {.placement = &placement, .chosen = chosen, .shape = {n, k}});
    const DispatchedRows arrived = exchange_.Dispatch(stream_, workspace_,
                                                      {.x = x,
                                                       .choices = round.choices,
                                                       .experts = experts,
                                                       .weights = weights,
                                                       .rows = round.counts,
                                                       .placement = &placement});
    Seen seen;
    const TensorView results = RunExperts(arrived, placement, seen);
    exchange_.Combine(stream_, results, back);
    seen.back = reader_.ReadValues(stream_, back.as<float>(), n * k * width);
    workspace_.ResetTo(mark);
    return seen;
  }

 private:
  static constexpr size_t kMaxBytes = size_t{4} * kMaxRows * kMaxChoices * kMaxWidth * 4;

  template <typename T>
  void Put(void* to, const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T);
    if (bytes == 0) return;
    std::memcpy(staged_.data(), values.data(), bytes);
    device_.Copy(stream_, to, staged_.data(), bytes);
    device_.Record(sent_, stream_);
    device_.Synchronize(sent_);
  }

  // On the host; results of rows that are not for this rank are NaN.
  TensorView RunExperts(const DispatchedRows& arrived, const ExpertPlacement& placement,
                        Seen& seen) {
    const int64_t rows = arrived.x.rows(), k = arrived.choices, width = arrived.x.cols();
    const TensorView results = workspace_.Take(DType::kF32, {rows * k, width});
    const auto places = reader_.ReadValues(stream_, arrived.places, rows * k);
    const auto weights = reader_.ReadValues(stream_, arrived.weights, rows * k);
    const auto x = reader_.ReadValues(stream_, arrived.x.as<float>(), rows * width);
    std::vector<float> values(static_cast<size_t>(rows * k * width), NAN);
    for (int64_t pair = 0; pair < rows * k; ++pair) {
      const int32_t place = places[static_cast<size_t>(pair)];
      if (place < 0) continue;
      const float* row = x.data() + pair / k * width;
      seen.places.push_back(place);
      seen.weights.push_back(weights[static_cast<size_t>(pair)]);
      seen.x.insert(seen.x.end(), row, row + width);
      RunExpert(placement.of_rank(exchange_.rank())[static_cast<size_t>(place)], row,
                seen.weights.back(), values.data() + pair * width, width);
    }
    Put(results.data, values);
    return results;
  }

  Device& device_;
  const Stream stream_;
  TokenExchange& exchange_;
  Workspace workspace_;
  const Buffer staged_;
  Reader reader_;
  const Event sent_;
};

TEST(TokenExchangeGpu, EqualsTheCpusWhateverTheRoutingAndTheCounts) {
  for (const int num_ranks : {1, 2, 4}) {
    RanksOnOneGpu ranks(num_ranks);
    // In order, with further copies of some, and by load: the heaviest first.
    const std::vector<int64_t> load = {1, 90, 3, 4, 50, 6, 7, 80};
    const int copies = num_ranks == 1 ? 0 : 4;
    const std::vector<ExpertPlacement> placements = {
        ExpertPlacement::Trivial(8, 0, num_ranks).value(),
        ExpertPlacement::Trivial(8, copies, num_ranks).value(),
        ExpertPlacement::Balanced(load, copies, num_ranks).value()};
    auto exchanges = MakePeerExchange(ranks.devices(), ranks.groups(), placements).value();
    std::vector<Round> rounds;
    std::vector<std::vector<Seen>> expected;
    Rng rng(9);
    for (int i = 0; i < 30; ++i) {
      Round round = {.choices = rng.Between(1, kMaxChoices), .width = 4 * rng.Between(1, 128)};
      for (int r = 0; r < num_ranks; ++r) {
        const int32_t count = rng.Below(3) == 0 ? 0 : rng.Between(0, kMaxRows);
        round.counts.push_back(count);
        round.rows.push_back(MakeRows(r, i, count, round.choices, round.width, 8));
      }
      expected.push_back(ExpectedOf(round, placements[static_cast<size_t>(i) % 3]));
      rounds.push_back(std::move(round));
    }
    ranks.OnEveryRank([&](int rank) {
      Member member(ranks.device(rank), ranks.stream(rank), *exchanges[static_cast<size_t>(rank)]);
      ranks.MeetOnHost();
      for (size_t i = 0; i < rounds.size(); ++i) {
        EXPECT_EQ(member.Exchange(rounds[i], placements[i % 3]),
                  expected[i][static_cast<size_t>(rank)])
            << num_ranks << " ranks, round " << i;
      }
      const Status status = ranks.device(rank).status();
      EXPECT_TRUE(status.ok()) << status.message();
      ranks.MeetOnHost();
    });
    EXPECT_FALSE(ranks.group(0).poisoned());
  }
}

// Copies are chosen, and choices counted, as the CPU does it, also by a graph that was captured
// before the experts moved. Padding is not counted.
TEST(TokenExchangeGpu, ACapturedChoiceFollowsPlacementsThatChange) {
  constexpr int kRanks = 2, kExperts = 8, kChoices = 3;
  constexpr int64_t kRows = 50, kFirstRow = 7, kUnpadded = 40;
  RanksOnOneGpu ranks(kRanks);
  const std::vector<int64_t> load = {1, 90, 3, 4, 50, 6, 7, 80};
  std::vector<ExpertPlacement> placements = {ExpertPlacement::Trivial(kExperts, 0, kRanks).value(),
                                             ExpertPlacement::Trivial(kExperts, 4, kRanks).value()};
  auto exchanges = MakePeerExchange(ranks.devices(), ranks.groups(), placements).value();
  auto cpu_group = MakeLocalGroup(kRanks).value();
  auto cpu_exchanges = TokenExchange::MakeLocal(cpu_group);
  const auto cpu = MakeCpuDevice(0);
  const Rows rows = MakeRows(0, 3, kRows, kChoices, 4, kExperts);
  constexpr int64_t kPairs = kRows * kChoices;
  for (int rank = 0; rank < kRanks; ++rank) {
    Device& device = ranks.device(rank);
    const Stream stream = ranks.stream(rank);
    TokenExchange& exchange = *exchanges[static_cast<size_t>(rank)];
    Workspace workspace(Buffer::Allocate(device, kWorkspaceBytes).value());
    Workspace cpu_workspace(Buffer::Allocate(*cpu, kWorkspaceBytes).value());
    int32_t* chosen = workspace.TakeArray<int32_t>(kPairs);
    int32_t* unpadded = workspace.TakeArray<int32_t>(1);
    int64_t* counts = workspace.TakeArray<int64_t>(kExperts);
    const std::vector<int64_t> zeros(kExperts, 0);
    const auto num_rows = static_cast<int32_t>(kUnpadded);
    device.Upload(chosen, rows.chosen.data(), kPairs * sizeof(int32_t));
    device.Upload(unpadded, &num_rows, sizeof(num_rows));
    device.Upload(counts, zeros.data(), kExperts * sizeof(int64_t));
    device.FinishLoading();
    Reader reader(device, kPairs * sizeof(int64_t));
    ChooseReplicasArgs args = {.placement = &placements[1],
                               .chosen = chosen,
                               .shape = {kRows, kChoices},
                               .counts = counts,
                               .num_rows = unpadded,
                               .first_row = kFirstRow};
    device.BeginCapture(stream);
    const int32_t* physical = exchange.ChooseReplicas(stream, workspace, args);
    const Graph graph = device.EndCapture(stream);
    std::vector<int64_t> expected_counts = zeros;
    args.chosen = rows.chosen.data();
    args.counts = expected_counts.data();
    args.num_rows = &num_rows;
    const ExpertPlacement before = placements[1];
    for (const ExpertPlacement& placement :
         {before, ExpertPlacement::Balanced(load, 4, kRanks).value()}) {
      placements[1] = placement;
      exchange.PlacementsChanged();
      device.Launch(graph, stream);
      const int32_t* expected =
          cpu_exchanges[static_cast<size_t>(rank)]->ChooseReplicas({}, cpu_workspace, args);
      EXPECT_EQ(reader.ReadValues(stream, physical, kPairs),
                std::vector<int32_t>(expected, expected + kPairs));
      EXPECT_EQ(reader.ReadValues(stream, counts, kExperts), expected_counts);
    }
    EXPECT_EQ(std::reduce(expected_counts.begin(), expected_counts.end()),
              2 * (kUnpadded - kFirstRow) * kChoices);
    placements[1] = before;
    EXPECT_TRUE(device.status().ok()) << device.status().message();
  }
}

// Rows of one choice come back as they went when what arrived is what is given back.
TEST(TokenExchangeGpu, AGraphReplaysItsExchanges) {
  constexpr int kRanks = 4, kReplays = 5;
  constexpr int64_t kRows = 3, kWidth = 64;
  RanksOnOneGpu ranks(kRanks);
  const std::vector<ExpertPlacement> placements = {ExpertPlacement::Trivial(8, 0, kRanks).value()};
  auto exchanges = MakePeerExchange(ranks.devices(), ranks.groups(), placements).value();
  const std::vector<int32_t> counts(kRanks, kRows);
  ranks.OnEveryRank([&](int rank) {
    Device& device = ranks.device(rank);
    const Stream stream = ranks.stream(rank);
    Workspace workspace(Buffer::Allocate(device, kWorkspaceBytes).value());
    const Rows rows = MakeRows(rank, 1, kRows, 1, kWidth, 8);
    const TensorView x = workspace.Take(DType::kF32, {kRows, kWidth});
    const TensorView back = workspace.Take(DType::kF32, {kRows, kWidth});
    int32_t* experts = workspace.TakeArray<int32_t>(kRows);
    float* weights = workspace.TakeArray<float>(kRows);
    device.Upload(experts, rows.chosen.data(), kRows * sizeof(int32_t));
    device.Upload(weights, rows.weights.data(), kRows * sizeof(float));
    device.FinishLoading();
    device.BeginCapture(stream);
    TokenExchange& exchange = *exchanges[static_cast<size_t>(rank)];
    const DispatchedRows arrived = exchange.Dispatch(stream, workspace,
                                                     {.x = x,
                                                      .choices = 1,
                                                      .experts = experts,
                                                      .weights = weights,
                                                      .rows = counts,
                                                      .placement = placements.data()});
    exchange.Combine(stream, arrived.x, back);
    const Graph graph = device.EndCapture(stream);
    Buffer staged =
        Buffer::Allocate(device, kReplays * sizeof(float) * kRows * kWidth, MemoryKind::kPinned)
            .value();
    Reader reader(device, sizeof(float) * kRows * kWidth);
    for (int i = 0; i < kReplays; ++i) {
      const std::vector<float> sent = MakeRows(rank, 10 + i, kRows, 1, kWidth, 8).x;
      std::memcpy(staged.data() + static_cast<size_t>(i) * sent.size() * sizeof(float), sent.data(),
                  sent.size() * sizeof(float));
    }
    ranks.MeetOnHost();
    for (int i = 0; i < kReplays; ++i) {
      const std::byte* sent = staged.data() + i * x.num_bytes();
      device.Copy(stream, x.data, sent, static_cast<size_t>(x.num_bytes()));
      device.Launch(graph, stream);
      const auto got = reader.Read(stream, back.data, static_cast<size_t>(back.num_bytes()));
      EXPECT_EQ(std::memcmp(got.data(), sent, got.size()), 0) << "replay " << i;
    }
    EXPECT_TRUE(device.status().ok()) << device.status().message();
    ranks.MeetOnHost();
  });
}

TEST(TokenExchangeGpu, ARankThatBringsOtherRowsThanPlannedEndsAllWithItsName) {
  constexpr int kRanks = 2;
  RanksOnOneGpu ranks(kRanks);
  const std::vector<ExpertPlacement> placements = {ExpertPlacement::Trivial(6, 0, kRanks).value()};
  auto exchanges = MakePeerExchange(ranks.devices(), ranks.groups(), placements).value();
  ranks.OnEveryRank([&](int rank) {
    Member member(ranks.device(rank), ranks.stream(rank), *exchanges[static_cast<size_t>(rank)]);
    ranks.MeetOnHost();
    for (int i = 0; i < 4; ++i) {
      Round round = {.choices = 2, .width = 8};
      for (int r = 0; r < kRanks; ++r) {
        // Rank 1 believes that it brings 3, once.
        round.counts.push_back(rank == 1 && r == 1 && i == 2 ? 3 : 2);
        round.rows.push_back(MakeRows(r, i, round.counts.back(), 2, 8, 6));
      }
      (void)member.Exchange(round, placements[0]);
    }
    ranks.MeetOnHost();
  });
  EXPECT_TRUE(ranks.group(0).poisoned());
  for (const auto& exchange : exchanges) {
    const Status failure = exchange->failure();
    EXPECT_EQ(failure.code(), ErrorCode::kInternal);
    EXPECT_NE(failure.message().find("rank 1 brought 3 rows"), std::string::npos)
        << failure.message();
  }
}

TEST(TokenExchangeGpu, ARankThatNeverComesReleasesTheOthersByPoison) {
  constexpr int kRanks = 2;
  RanksOnOneGpu ranks(kRanks);
  const std::vector<ExpertPlacement> placements = {ExpertPlacement::Trivial(8, 0, kRanks).value()};
  auto exchanges = MakePeerExchange(ranks.devices(), ranks.groups(), placements).value();
  Device& device = ranks.device(0);
  Workspace workspace(Buffer::Allocate(device, kWorkspaceBytes).value());
  const TensorView x = workspace.Take(DType::kF32, {2, 8});
  const int32_t* experts = workspace.TakeArray<int32_t>(2);
  const float* weights = workspace.TakeArray<float>(2);
  Reader reader(device, 64);
  const std::vector<int32_t> counts = {2, 2};
  const DispatchedRows arrived = exchanges[0]->Dispatch(ranks.stream(0), workspace,
                                                        {.x = x,
                                                         .choices = 1,
                                                         .experts = experts,
                                                         .weights = weights,
                                                         .rows = counts,
                                                         .placement = placements.data()});
  exchanges[0]->Combine(ranks.stream(0), arrived.x, x);
  ranks.group(1).Poison();
  // Nothing is for the experts here.
  EXPECT_EQ(reader.ReadValues(ranks.stream(0), arrived.places, 4), std::vector<int32_t>(4, -1));
  EXPECT_TRUE(device.status().ok()) << device.status().message();
}

}  // namespace
}  // namespace hayate::comm
