#pragma once
// A worker without a model: it answers at once, or in the time that it is told to take, and fails
// when it is told to fail. What a gateway adds can be measured before it, and its rules be tested.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "http/endpoint.h"

namespace hayate::bench {

struct MockWorkerOptions {
  http::Endpoint listen{"127.0.0.1", 0};
  int num_threads = 1;
  std::string model = "mock";
  std::string disaggregation_mode = "null";
  std::chrono::microseconds first_token{0};
  std::chrono::microseconds inter_token{0};  // 0: all events of a stream at once, as fast as taken
  int num_tokens = 16;                       // of an answer when the request does not say
  // Shares of requests: answered 500; closed before an answer; cut in the middle of it; never
  // answered.
  double error_rate = 0.0;
  double close_rate = 0.0;
  double cut_rate = 0.0;
  double hang_rate = 0.0;
  uint64_t seed = 1;
};

class MockWorker {
 public:
  // Serves from here on. kIo names the address.
  static Result<std::unique_ptr<MockWorker>> Start(const MockWorkerOptions& options);
  ~MockWorker();
  uint16_t port() const;

 private:
  struct Impl;
  explicit MockWorker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hayate::bench
