#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <vector>

#include "app/bench_commands.h"
#include "base/json_writer.h"
#include "base/mapped_file.h"
#include "bench/rank_measurement.h"
#include "bench/rank_simulation.h"
#include "comm/expert_plan_json.h"

namespace hayate::app {
namespace {

constexpr size_t kMaxRecordBytes = size_t{64} << 20;

struct BenchRanksOptions {
  std::string shape = "v4-flash";
  bench::RankSimulationOptions simulation;
  std::vector<int32_t> batches = {8, 16, 32, 64, 128, 256};
  int num_redundant = 64;
  double zipf = 0.5;
  std::string record;    // of counts; empty: Zipf
  bool measure = false;  // on ranks of this machine
  bool json = false;
};

// One way to place the experts.
struct Variant {
  const char* name;
  bool balanced;
  int num_redundant;
};

struct Row {
  int32_t batch;
  Variant variant;
  bench::RankSimulation result;
};

Result<bench::ExpertRouting> MakeRouting(const BenchRanksOptions& options,
                                         const bench::RankModel& model) {
  if (options.record.empty()) {
    return bench::ExpertRouting::Zipf(model.num_layers, model.num_experts, options.zipf,
                                      options.simulation.seed);
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(options.record, kMaxRecordBytes));
  comm::ExpertPlan plan;
  if (Status status = comm::ReadExpertPlan(text, plan); !status.ok()) {
    return status.Under(options.record);
  }
  return bench::ExpertRouting::Recorded(plan.logical_count, model.top_k);
}

void WriteRow(JsonWriter& json, const Row& row) {
  const bench::RankSimulation& r = row.result;
  json.BeginObject();
  json.Field("sequences_per_rank", row.batch);
  json.Field("placement", row.variant.name);
  json.Field("redundant_experts", row.variant.num_redundant);
  json.Field("imbalance", r.imbalance);
  json.Field("experts_touched", r.experts_touched);
  json.Field("dispatch_mb_per_rank", r.dispatch_mb);
  json.Field("combine_mb_per_rank", r.combine_mb);
  json.Field("attention_us_per_layer", r.attention_us);
  json.Field("experts_us_per_layer", r.experts_us);
  json.Field("exchange_us_per_layer", r.exchange_us);
  json.Field("step_ms", r.step_ms);
  json.Field("step_ms_two_batches", r.step_ms_two_batches);
  json.Field("tokens_per_s_per_rank", r.tokens_per_s);
  json.Field("tokens_per_s_per_rank_two_batches", r.tokens_per_s_two_batches);
  json.EndObject();
}

std::string ToJson(const BenchRanksOptions& options, const std::vector<Row>& rows) {
  const bench::RankSimulationOptions& s = options.simulation;
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("what",
             "simulated decode steps under DP attention and expert parallelism; times are "
             "floors of the given rates");
  json.Field("shape", options.shape);
  json.Field("ranks", s.step.num_ranks);
  json.Field("context", s.step.context);
  json.Field("tokens_per_sequence", s.step.tokens_per_sequence);
  json.Field("accepted_per_sequence", s.step.accepted_per_sequence);
  json.Field("routing", options.record.empty() ? fmt::format("zipf {}", options.zipf)
                                               : "recorded " + options.record);
  json.Field("memory_gb_s", s.rates.memory_gb_s);
  json.Field("tflop_s", s.rates.tflop_s);
  json.Field("link_gb_s", s.rates.link_gb_s);
  json.Field("exchange_us", s.rates.exchange_us);
  json.Key("results");
  json.BeginArray();
  for (const Row& row : rows) WriteRow(json, row);
  json.EndArray();
  json.EndObject();
  return out;
}

void PrintTable(const std::vector<Row>& rows) {
  fmt::print("{:>5} {:>10} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}\n", "batch", "placement",
             "imbalance", "exchange", "attn", "experts", "travel", "step", "tok/s", "2-batch");
  fmt::print("{:>5} {:>10} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9}\n", "/rank", "",
             "max/mean", "MB", "us/layer", "us/layer", "us/layer", "ms", "/rank", "tok/s");
  for (const Row& row : rows) {
    const bench::RankSimulation& r = row.result;
    fmt::print(
        "{:>5} {:>10} {:>9.2f} {:>9.1f} {:>8.1f} {:>8.1f} {:>8.1f} {:>8.2f} {:>9.0f} "
        "{:>9.0f}\n",
        row.batch, row.variant.name, r.imbalance, r.dispatch_mb + r.combine_mb, r.attention_us,
        r.experts_us, r.exchange_us, r.step_ms, r.tokens_per_s, r.tokens_per_s_two_batches);
  }
}

std::string ToJson(const std::vector<bench::RankMeasurement>& measurements) {
  std::string out;
  JsonWriter json(out);
  json.BeginArray();
  for (const bench::RankMeasurement& m : measurements) {
    json.BeginObject();
    json.Field("rows_per_rank", m.rows);
    json.Field("placement", m.placement);
    json.Field("imbalance", m.imbalance);
    json.Field("foretold_us_per_layer", m.foretold_us);
    json.Field("measured_us_per_layer", m.measured_us);
    json.EndObject();
  }
  json.EndArray();
  return out;
}

Status Measure(const BenchRanksOptions& options) {
  ASSIGN_OR_RETURN(const auto measurements,
                   bench::MeasureRanks({.num_ranks = options.simulation.step.num_ranks,
                                        .zipf = options.zipf,
                                        .seed = options.simulation.seed}));
  if (options.json) {
    fmt::print("{}\n", ToJson(measurements));
    return OkStatus();
  }
  fmt::print("{:>6} {:>10} {:>9} {:>9} {:>9} {:>6}\n", "rows", "placement", "imbalance", "foretold",
             "measured", "ratio");
  for (const bench::RankMeasurement& m : measurements) {
    fmt::print("{:>6} {:>10} {:>9.2f} {:>9.0f} {:>9.0f} {:>6.2f}\n", m.rows, m.placement,
               m.imbalance, m.foretold_us, m.measured_us, m.foretold_us / m.measured_us);
  }
  return OkStatus();
}

Status BenchRanks(const BenchRanksOptions& options) {
  if (options.measure) return Measure(options);
  bench::RankSimulationOptions simulation = options.simulation;
  ASSIGN_OR_RETURN(simulation.model, bench::FindRankModel(options.shape));
  ASSIGN_OR_RETURN(const bench::ExpertRouting routing, MakeRouting(options, simulation.model));
  const Variant variants[] = {
      {"in order", false, 0}, {"balanced", true, 0}, {"redundant", true, options.num_redundant}};
  std::vector<Row> rows;
  for (const int32_t batch : options.batches) {
    for (const Variant& variant : variants) {
      simulation.step.sequences_per_rank = batch;
      simulation.balanced = variant.balanced;
      simulation.num_redundant = variant.num_redundant;
      ASSIGN_OR_RETURN(const bench::RankSimulation result,
                       bench::SimulateRanks(simulation, routing));
      rows.push_back({batch, variant, result});
    }
  }
  if (options.json) {
    fmt::print("{}\n", ToJson(options, rows));
  } else {
    PrintTable(rows);
  }
  return OkStatus();
}

}  // namespace

void AddBenchRanks(CLI::App& bench, Command& chosen) {
  CLI::App* command = bench.add_subcommand(
      "ranks", "Simulate steps of many ranks under DP attention and expert parallelism");
  auto options = std::make_shared<BenchRanksOptions>();
  bench::RankSimulationOptions& s = options->simulation;
  command->add_option("--shape", options->shape, "v4-flash or v4.1-flash")
      ->check(CLI::IsMember({"v4-flash", "v4.1-flash"}))
      ->capture_default_str();
  command->add_option("--ranks", s.step.num_ranks)
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--batches", options->batches, "sequences of a rank, one run each")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  command->add_option("--context", s.step.context, "tokens in each sequence's cache")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24))
      ->capture_default_str();
  command
      ->add_option("--tokens-per-sequence", s.step.tokens_per_sequence,
                   "rows of a sequence in a step: one and its drafts")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--accepted", s.step.accepted_per_sequence, "tokens that a step brings")
      ->check(NumberBetween(1.0, 64.0))
      ->capture_default_str();
  command
      ->add_option("--ep-num-redundant-experts", options->num_redundant,
                   "of the runs that have some")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command->add_option("--zipf", options->zipf, "the i-th expert has weight i^-zipf")
      ->check(NumberBetween(0.0, 4.0))
      ->capture_default_str();
  command->add_option("--record", options->record, "JSON with the logical_count of a server");
  command->add_option("--memory-gb-s", s.rates.memory_gb_s)
      ->check(NumberBetween(1, 1e6))
      ->capture_default_str();
  command->add_option("--tflop-s", s.rates.tflop_s)
      ->check(NumberBetween(0.1, 1e6))
      ->capture_default_str();
  command->add_option("--link-gb-s", s.rates.link_gb_s, "of a rank, each direction")
      ->check(NumberBetween(0.1, 1e6))
      ->capture_default_str();
  command->add_option("--exchange-us", s.rates.exchange_us, "a dispatch or combine of no bytes")
      ->check(NumberBetween(0, 1e6))
      ->capture_default_str();
  command->add_option("--seed", s.seed);
  command->add_flag("--measure", options->measure,
                    "a layer on --ranks CPU ranks of this machine: its times, and what the "
                    "simulation foretells");
  command->add_flag("--json", options->json, "one JSON object");
  command->callback([&chosen, options] { chosen = [options] { return BenchRanks(*options); }; });
}

}  // namespace hayate::app
