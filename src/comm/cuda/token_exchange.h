#pragma once
// What a rank shows to its peers in an exchange of rows, and the kernels of one. Plain data, no
// CUDA headers.
//
// Every rank knows how many rows each brings, so a row has one place everywhere: behind the rows of
// the ranks before its own. Nothing is counted on the way:
//
//   dispatch   meet; take the rows that have an expert here from where their rank has them
//   combine    meet; take the own rows' results from where their experts' ranks have them; meet:
//   all
//              have taken theirs

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/cuda/peer_memory.h"
#include "comm/token_exchange.h"
#include "tensor/device.h"

namespace hayate::comm::cuda {

// Addresses on the rank's device, written before it meets the others.
struct alignas(16) ExchangeBoard {
  const std::byte* x = nullptr;        // [n, H]
  const int32_t* experts = nullptr;    // [n, K] physical
  const float* weights = nullptr;      // [n, K]
  const std::byte* results = nullptr;  // [R, K, H]
  int64_t rows = 0;                    // n
};

// Lies in the device memory of its rank; peers write `arrived` and read the board.
struct ExchangeMemory {
  uint32_t arrived[2][kMaxPeerRanks][kMaxBlocks];  // as PeerMemory's
  uint32_t epoch;
  uint32_t finished;
  ExchangeBoard board;
};

// A rank that brought another number of rows than planned, as the first kernel to see it wrote it;
// in host memory.
struct ExchangeFault {
  uint32_t found = 0;
  int32_t rank = 0, brought = 0, expected = 0;
};

struct ExchangePeers {
  ExchangeMemory* memory[kMaxPeerRanks] = {};
  uint32_t* poisoned = nullptr;  // the group's
  ExchangeFault* fault = nullptr;
  int rank = 0;
  int size = 0;
  int max_blocks = kMaxBlocks;  // as Peers'
};

// What both kernels know of an exchange.
struct ExchangeStep {
  ExchangePeers peers;
  // Rank r's rows are [first_row[r], first_row[r + 1]) of all.
  int32_t first_row[kMaxPeerRanks + 1] = {};
  int32_t choices = 0;    // K
  int32_t per_rank = 0;   // physical experts of a rank
  int64_t row_units = 0;  // a row, in units of 16 bytes
};

// x [R, H], places and weights [R, K] of DispatchedRows, R = first_row[size].
void DispatchRows(Stream stream, const ExchangeStep& step, const ExchangeBoard& own, std::byte* x,
                  int32_t* places, float* weights);
// out [n, K, H].
void CombineRows(Stream stream, const ExchangeStep& step, const std::byte* results, std::byte* out);

// A placement as a kernel reads it: replicas [first_replica[e], first_replica[e + 1]) of a logical
// expert, on the device.
struct ReplicaTable {
  const int32_t* first_replica = nullptr;  // [E + 1]
  const int32_t* replicas = nullptr;       // [P]
};
// physical [n, K]: the copies that rows get in turns which begin at `turn`.
void ChooseReplicaOf(Stream stream, const ReplicaTable& table, const ChooseReplicasArgs& args,
                     int32_t turn, int32_t* physical);

// As LoadPeerKernels.
void LoadExchangeKernels(Device* device);

Result<std::vector<std::unique_ptr<TokenExchange>>> MakePeerExchange(
    std::span<Device* const> devices, std::span<const std::unique_ptr<Group>> group,
    std::span<const ExpertPlacement> placements);

}  // namespace hayate::comm::cuda
