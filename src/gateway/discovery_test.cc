#include "gateway/discovery.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "gateway/own_routes.h"
#include "gateway/router.h"
#include "gateway/worker_facts.h"

namespace hayate::gateway {
namespace {

std::string Pod(const char* uid, const char* ip, const char* extra = "", bool ready = true) {
  return fmt::format(
      R"({{"metadata":{{"uid":"{}","resourceVersion":"5","annotations":)"
      R"({{"sglang.ai/bootstrap-port":"9001"}}{}}},"status":{{"podIP":"{}","conditions":)"
      R"([{{"type":"Ready","status":"{}"}}]}}}})",
      uid, extra, ip, ready ? "True" : "False");
}

std::string Event(const char* type, const std::string& object) {
  return fmt::format(R"({{"type":"{}","object":{}}})", type, object);
}

TEST(KubeStore, FollowsPodsFromListToDeletion) {
  KubeOptions options;
  options.name_space = "models";
  options.port = 30000;
  KubeStore store(options, WorkerRole::kPrefill);
  EXPECT_EQ(store.ListPath("app=x,tier in (a)"),
            "/api/v1/namespaces/models/pods?labelSelector=app%3Dx%2Ctier%20in%20%28a%29");
  const std::string list =
      fmt::format(R"({{"metadata":{{"resourceVersion":"4"}},"items":[{},{}]}})",
                  Pod("a", "10.0.0.1"), Pod("b", "10.0.0.2", "", false));
  ASSERT_TRUE(store.ApplyList(list).ok());
  ASSERT_EQ(store.Workers().size(), 1u);
  EXPECT_EQ(store.Workers()[0].url, "http://10.0.0.1:30000");
  EXPECT_EQ(store.Workers()[0].bootstrap_port, 9001);
  EXPECT_EQ(store.Workers()[0].role, WorkerRole::kPrefill);
  EXPECT_TRUE(store.WatchPath("a=b").ends_with("resourceVersion=4"));

  EXPECT_EQ(store.ApplyEvent(Event("MODIFIED", Pod("b", "10.0.0.2"))),
            KubeStore::Applied::kChanged);
  EXPECT_EQ(store.ApplyEvent(Event("MODIFIED", Pod("b", "10.0.0.2"))),
            KubeStore::Applied::kUnchanged);
  EXPECT_EQ(store.Workers().size(), 2u);
  EXPECT_TRUE(store.WatchPath("a=b").ends_with("resourceVersion=5"));
  EXPECT_EQ(
      store.ApplyEvent(Event(
          "MODIFIED", Pod("b", "10.0.0.2", R"(,"deletionTimestamp":"2026-01-01T00:00:00Z")"))),
      KubeStore::Applied::kChanged);
  EXPECT_EQ(store.ApplyEvent(Event("DELETED", Pod("a", "10.0.0.1"))), KubeStore::Applied::kChanged);
  EXPECT_TRUE(store.Workers().empty());
  EXPECT_EQ(store.ApplyEvent(R"({"type":"ERROR","object":{"code":410}})"),
            KubeStore::Applied::kListAgain);
  EXPECT_EQ(store.ApplyEvent("garbage"), KubeStore::Applied::kListAgain);
}

TEST(KubeStore, ReadsReadyEndpointsAndTheirPort) {
  KubeOptions options;
  options.objects = KubeOptions::Objects::kEndpointSlices;
  KubeStore store(options, WorkerRole::kRegular);
  ASSERT_TRUE(
      store
          .ApplyList(R"({"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"uid":"s"},
    "ports":[{"port":8000}],"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true}},
    {"addresses":["10.0.0.2"],"conditions":{"ready":false}},{"addresses":["fd00::1"]}]}]})")
          .ok());
  const auto workers = store.Workers();
  ASSERT_EQ(workers.size(), 2u);
  EXPECT_EQ(workers[0].url, "http://10.0.0.1:8000");
  EXPECT_EQ(workers[1].url, "http://[fd00::1]:8000");
}

TEST(WorkerFile, IsLinesOrJson) {
  const auto lines = ParseWorkerFile("# fleet\nhttp://a:1/\n\nb:2\r\n");
  ASSERT_TRUE(lines.ok());
  ASSERT_EQ(lines->size(), 2u);
  EXPECT_EQ((*lines)[0].url, "http://a:1");
  EXPECT_EQ((*lines)[1].url, "http://b:2");
  const auto json = ParseWorkerFile(
      R"({"workers":[{"url":"http://a:1","worker_type":"prefill","bootstrap_port":9000}]})");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ((*json)[0].role, WorkerRole::kPrefill);
  EXPECT_EQ((*json)[0].bootstrap_port, 9000);
  const auto bad = ParseWorkerFile(R"({"workers":[{"url":"http://a:1"},{"url":""}]})");
  ASSERT_FALSE(bad.ok());
  EXPECT_NE(bad.status().message().find("workers[1]"), std::string::npos);
}

TEST(WorkerFacts, AreReadFromSglangsForms) {
  WorkerFacts facts;
  ReadServerInfo(R"({"model_path":"/m","served_model_name":"M","max_total_num_tokens":1000,)"
                 R"("disaggregation_mode":"decode","max_running_requests":64,)"
                 R"("dp_size":4})",
                 facts);
  ReadModelList(R"({"data":[{"id":"M"},{"id":"M:lora"},{"id":5}]})", facts);
  EXPECT_EQ(facts.models, (std::vector<std::string>{"M", "M:lora"}));
  EXPECT_EQ(facts.max_total_tokens, 1000);
  EXPECT_EQ(facts.role, WorkerRole::kDecode);
  EXPECT_EQ(facts.dp_size, 4);
  const auto loads =
      ReadLoads(R"({"loads":[{"num_running_reqs":2,"num_waiting_reqs":3,"token_usage":0.5},)"
                R"({"num_running_reqs":1,"num_waiting_reqs":0,"token_usage":0.25}]})",
                -1, 7);
  ASSERT_TRUE(loads.has_value());
  EXPECT_EQ(loads->running, 3);
  EXPECT_EQ(loads->waiting, 3);
  EXPECT_EQ(loads->token_usage, 0.5);
  const auto old = ReadLoads(R"([{"dp_rank":0,"num_reqs":5,"num_waiting_reqs":2}])", -1, 7);
  EXPECT_EQ(old->running, 3);
  const auto second = ReadLoads(
      R"({"loads":[{"dp_rank":0,"num_running_reqs":2},{"dp_rank":1,"num_running_reqs":7}]})", 1, 7);
  EXPECT_EQ(second->running, 7);
  EXPECT_FALSE(ReadLoads("{}", -1, 7).has_value());
}

TEST(Ranks, OfAProcessAreWorkersThatComeAndGoTogether) {
  Router router({.dp_aware = true});
  const WorkerSpec spec{.url = "http://a:1", .source = "file"};
  const WorkerId first = *router.Add(spec);
  router.OnProbe(first, true, 0);
  router.OnFacts(first, {.models = {"M"}, .dp_size = 3});
  router.OnFacts(first, {.models = {"M"}, .dp_size = 3});  // again, after a restart
  const auto ranks = router.Workers();
  ASSERT_EQ(ranks.size(), 3u);
  EXPECT_EQ(NameOf(*ranks[0].spec), "http://a:1@0");
  EXPECT_EQ(NameOf(*ranks[2].spec), "http://a:1@2");
  EXPECT_EQ(ranks[0].state, WorkerState::kReady);
  EXPECT_EQ(ranks[1].state, WorkerState::kPending);
  EXPECT_EQ(router.FindUrl("http://a:1@1")->id, ranks[1].id);
  SyncWorkers(router, "file", {spec});
  EXPECT_EQ(router.Workers().size(), 3u);
  EXPECT_EQ(router.Workers()[1].spec->dp_rank, 1);
  SyncWorkers(router, "file", {});
  EXPECT_EQ(router.Reap().size(), 3u);
}

TEST(SyncWorkers, TouchesOnlyItsOwnSource) {
  Router router({});
  ASSERT_TRUE(router.Add({.url = "http://manual:1"}).ok());
  SyncWorkers(router, "file",
              {{.url = "http://a:1", .source = "file"}, {.url = "http://b:1", .source = "file"}});
  EXPECT_EQ(router.Workers().size(), 3u);
  SyncWorkers(router, "file", {{.url = "http://b:1", .source = "file"}});
  EXPECT_EQ(router.Reap().size(), 1u);
  EXPECT_TRUE(router.FindUrl("http://manual:1").has_value());
  EXPECT_TRUE(router.FindUrl("http://b:1").has_value());
  EXPECT_FALSE(router.FindUrl("http://a:1").has_value());
}

}  // namespace
}  // namespace hayate::gateway
