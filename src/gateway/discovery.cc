#include "gateway/discovery.h"

#include <netdb.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "gateway/own_routes.h"
#include "http/client.h"

namespace hayate::gateway {
namespace {

constexpr std::chrono::milliseconds kFileInterval{1000};
constexpr std::chrono::milliseconds kRelistDelay{1000};
// Bounds how long a stopping gateway waits for a silent watch; the server sends bookmarks.
constexpr std::chrono::milliseconds kWatchSilence{5000};
constexpr size_t kMaxListBytes = 256 << 20;
constexpr size_t kMaxEventBytes = 16 << 20;

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return Error(ErrorCode::kIo, "cannot read {}", path);
  return text.str();
}

// Every address of the host, as "http://address:port".
Result<std::vector<WorkerSpec>> ResolveAll(const std::string& name) {
  ASSIGN_OR_RETURN(const http::Url url, http::ParseUrl(name));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(url.endpoint.host.c_str(), nullptr, &hints, &list);
      error != 0) {
    return Error(ErrorCode::kNotFound, "{}: {}", url.endpoint.host, gai_strerror(error));
  }
  std::vector<WorkerSpec> workers;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    char host[NI_MAXHOST];
    if (getnameinfo(entry->ai_addr, entry->ai_addrlen, host, sizeof(host), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
      continue;
    }
    WorkerSpec spec{.url = "http://" + http::Endpoint{host, url.endpoint.port}.ToString()};
    const auto same = [&](const WorkerSpec& other) { return other.url == spec.url; };
    if (std::none_of(workers.begin(), workers.end(), same)) workers.push_back(std::move(spec));
  }
  freeaddrinfo(list);
  return workers;
}

}  // namespace

bool StopFlag::SleepFor(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, time, [this] { return stopped_; });
}

void StopFlag::Stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

bool StopFlag::stopped() {
  std::lock_guard lock(mutex_);
  return stopped_;
}

Discovery::Discovery(DiscoveryOptions options, WorkersChanged changed)
    : options_(std::move(options)), changed_(std::move(changed)) {
  if (!options_.worker_file.empty()) threads_.emplace_back("gw-file", [this] { WatchFile(); });
  if (!options_.dns.empty()) threads_.emplace_back("gw-dns", [this] { WatchDns(); });
  for (const KubeSelector& selector : options_.kube.selectors) {
    threads_.emplace_back("gw-kube", [this, selector] { WatchKube(selector); });
  }
}

Discovery::~Discovery() {
  stop_.Stop();
  for (NamedThread& thread : threads_) thread.Join();
}

void Discovery::WatchFile() {
  struct stat seen {};
  do {
    struct stat now {};
    if (stat(options_.worker_file.c_str(), &now) != 0) continue;  // keep what was there
    if (now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec &&
        now.st_ino == seen.st_ino) {
      continue;
    }
    seen = now;
    const auto text = ReadFile(options_.worker_file);
    auto workers = text.ok() ? ParseWorkerFile(*text) : text.status();
    if (!workers.ok()) {
      LOG_WARN("{}: {}; the workers stay as they are", options_.worker_file,
               workers.status().message());
      continue;
    }
    for (WorkerSpec& spec : *workers) {
      spec.source = "file";
      if (spec.api_key.empty()) spec.api_key = options_.worker_api_key;
    }
    changed_("file", *workers);
  } while (stop_.SleepFor(kFileInterval));
}

void Discovery::WatchDns() {
  std::vector<std::vector<WorkerSpec>> found(options_.dns.size());
  do {
    std::vector<WorkerSpec> all;
    for (size_t i = 0; i < options_.dns.size(); ++i) {
      auto workers = ResolveAll(options_.dns[i]);
      if (workers.ok()) {
        found[i] = std::move(workers).value();
      } else {
        LOG_WARN("{}; its workers stay as they are", workers.status().message());
      }
      all.insert(all.end(), found[i].begin(), found[i].end());
    }
    for (WorkerSpec& spec : all) {
      spec.source = "dns";
      spec.api_key = options_.worker_api_key;
    }
    changed_("dns", all);
  } while (stop_.SleepFor(options_.dns_interval));
}

void Discovery::WatchKube(KubeSelector selector) {
  const std::string source = fmt::format("kube:{}:{}", RoleName(selector.role), selector.labels);
  std::string server = options_.kube.api_server;
  if (server.empty()) {
    const char* host = std::getenv("KUBERNETES_SERVICE_HOST");
    const char* port = std::getenv("KUBERNETES_SERVICE_PORT");
    if (host == nullptr || port == nullptr) {
      return LOG_ERROR("no --kube-api-server, and this is no pod: nothing is discovered");
    }
    server = fmt::format("https://{}:{}", host, port);
  }
  const auto url = http::ParseUrl(server);
  if (!url.ok()) return LOG_ERROR("{}: {}", server, url.status().message());

  KubeStore store(options_.kube, selector.role);
  const auto publish = [&] {
    std::vector<WorkerSpec> workers = store.Workers();
    for (WorkerSpec& spec : workers) {
      spec.source = source;
      spec.api_key = options_.worker_api_key;
    }
    changed_(source, workers);
  };
  const auto request = [&](std::string path) {
    http::ClientRequest out{.target = std::move(path)};
    // Read each time: the token is rotated.
    if (const auto token = ReadFile(options_.kube.token_file); token.ok() && !token->empty()) {
      std::string value = *token;
      while (!value.empty() && (value.back() == '\n' || value.back() == '\r')) value.pop_back();
      out.headers.emplace_back("Authorization", "Bearer " + value);
    }
    return out;
  };
  http::ClientOptions client_options{.head_timeout = std::chrono::seconds(30),
                                     .read_timeout = kWatchSilence};
  if (url->endpoint.tls) {
    auto tls = http::TlsContext::ForClient({.ca_file = options_.kube.ca_file});
    if (!tls.ok()) return LOG_ERROR("{}: {}", server, tls.status().message());
    client_options.tls = std::move(tls).value();
  }
  do {
    auto client = http::BlockingClient::Create(url->endpoint, client_options);
    if (!client.ok()) continue;
    const auto list = client->Fetch(request(store.ListPath(selector.labels)), kMaxListBytes);
    const Status status = !list.ok() ? list.status()
                          : list->status != 200
                              ? Error(ErrorCode::kUnavailable, "status {}", list->status)
                              : store.ApplyList(list->body);
    if (!status.ok()) {
      LOG_WARN("{}: {}; the workers stay as they are", server, status.message());
      continue;
    }
    publish();
    bool list_again = false;
    while (!list_again && !stop_.stopped()) {
      std::string line;
      const auto watched = client->FetchStream(
          request(store.WatchPath(selector.labels)), [&](int code, std::string_view bytes) {
            if (code != 200) list_again = true;
            while (!bytes.empty() && !list_again && !stop_.stopped()) {
              const size_t end = bytes.find('\n');
              line.append(bytes.substr(0, end));
              if (end == std::string_view::npos) break;
              bytes.remove_prefix(end + 1);
              const KubeStore::Applied applied = store.ApplyEvent(line);
              line.clear();
              if (applied == KubeStore::Applied::kChanged) publish();
              list_again = applied == KubeStore::Applied::kListAgain;
            }
            return !list_again && !stop_.stopped() && line.size() <= kMaxEventBytes;
          });
      // Silence is normal: the watch goes on from where it was.
      if (watched.ok() || watched.status().code() == ErrorCode::kDeadlineExceeded) continue;
      list_again = true;
    }
  } while (stop_.SleepFor(kRelistDelay));
}

}  // namespace hayate::gateway
