#include "bench/all_reduce_timing.h"

#include <algorithm>
#include <barrier>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "bench/sample_stats.h"
#include "comm/peer_group.h"
#include "tensor/buffer.h"

namespace hayate::bench {
namespace {

constexpr int kSums = 50;  // of a graph
constexpr int kRounds = 15;

struct Rank {
  std::unique_ptr<Device> device;
  Stream stream;
  Buffer data;
  std::unique_ptr<comm::Group> group;
};

// On the rank's thread, which the device becomes current on.
Status OpenRank(Rank& rank, int index, size_t bytes) {
  ASSIGN_OR_RETURN(rank.device, MakeCudaDevice({.index = index, .memory_fraction = 0.1}));
  rank.stream = rank.device->NewStream();
  ASSIGN_OR_RETURN(rank.data, Buffer::Allocate(*rank.device, bytes));
  // Zeros stay finite however often they are added.
  const std::vector<std::byte> zeros(bytes, std::byte{0});
  rank.device->Upload(rank.data.data(), zeros.data(), bytes);
  rank.device->FinishLoading();
  return rank.device->status();
}

// On the last rank's thread once all have opened their devices.
Status JoinRanks(std::span<Rank> ranks) {
  std::vector<Device*> devices;
  for (const Rank& rank : ranks) devices.push_back(rank.device.get());
  ASSIGN_OR_RETURN(auto groups, comm::MakePeerGroup(devices));
  for (size_t r = 0; r < ranks.size(); ++r) ranks[r].group = std::move(groups[r]);
  return OkStatus();
}

// One rank's part. Ranks meet on the host before each round, so that none is measured waiting for
// another's start.
std::vector<double> RoundSeconds(Rank& rank, int64_t bytes, std::barrier<>& meeting) {
  const SteadyClock clock;
  Device& device = *rank.device;
  const Event done = device.NewEvent();
  const TensorView data{rank.data.data(), DType::kBF16, {bytes / 2}};
  device.BeginCapture(rank.stream);
  for (int i = 0; i < kSums; ++i) rank.group->AllReduce(rank.stream, data);
  const Graph graph = device.EndCapture(rank.stream);
  std::vector<double> seconds;
  for (int round = -2; round < kRounds; ++round) {
    meeting.arrive_and_wait();
    const int64_t begin_ns = clock.NowNs();
    device.Launch(graph, rank.stream);
    device.Record(done, rank.stream);
    device.Synchronize(done);
    if (round >= 0) {
      seconds.push_back(static_cast<double>(clock.NowNs() - begin_ns) * 1e-9 / kSums);
    }
  }
  return seconds;
}

}  // namespace

Result<std::vector<AllReduceResult>> TimeAllReduces(int num_ranks, std::span<const int64_t> sizes) {
  const auto largest = static_cast<size_t>(*std::max_element(sizes.begin(), sizes.end()));
  std::vector<Rank> ranks(static_cast<size_t>(num_ranks));
  std::vector<Status> statuses(ranks.size());
  std::vector<std::vector<double>> medians(ranks.size());  // by rank and size
  Status joined;
  const auto join = [&]() noexcept {
    for (const Status& status : statuses) joined = joined.ok() ? status : joined;
    if (joined.ok()) joined = JoinRanks(ranks);
  };
  std::barrier opened(num_ranks, join);
  std::barrier<> meeting(num_ranks);
  {
    std::vector<std::jthread> threads;
    for (size_t r = 0; r < ranks.size(); ++r) {
      threads.emplace_back([&, r] {
        statuses[r] = OpenRank(ranks[r], static_cast<int>(r), largest);
        opened.arrive_and_wait();
        if (!joined.ok()) return;
        for (const int64_t bytes : sizes) {
          medians[r].push_back(Summarize(RoundSeconds(ranks[r], bytes, meeting)).median);
        }
        statuses[r] = ranks[r].device->status();
      });
    }
  }
  for (const Status& status : statuses) joined = joined.ok() ? status : joined;
  // The groups first: their memory lies on all devices.
  for (Rank& rank : ranks) rank.group.reset();
  if (!joined.ok()) return joined;

  std::vector<AllReduceResult> results;
  for (size_t i = 0; i < sizes.size(); ++i) {
    double slowest = 0.0;
    for (const std::vector<double>& of_rank : medians) slowest = std::max(slowest, of_rank[i]);
    results.push_back({sizes[i], slowest * 1e6});
  }
  return results;
}

std::string ToJson(int num_ranks, std::span<const AllReduceResult> results) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("ranks", num_ranks);
  json.Key("all_reduce");
  json.BeginArray();
  for (const AllReduceResult& result : results) {
    json.BeginObject();
    json.Field("bytes", result.bytes);
    json.Field("us", result.us);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return out;
}

}  // namespace hayate::bench
