#include "http/client.h"

#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "http/detail/client_connection.h"

namespace hayate::http {

struct Client::Impl final : ClientConnectionOwner {
  Impl(EventLoop& event_loop, Endpoint server, SocketAddress server_address,
       ClientOptions client_options)
      : loop(event_loop),
        endpoint(std::move(server)),
        address(std::move(server_address)),
        options(client_options),
        scratch(64 << 10) {}

  void OnComplete(ClientConnection* connection, Reuse reuse) override {
    const auto it = active.find(connection->id());
    std::unique_ptr<ClientConnection> owned = std::move(it->second);
    active.erase(it);
    const ResponseHandlers handlers = owned->TakeHandlers();
    // Idle before on_done, so that a request made there finds it.
    if (reuse == Reuse::kReusable && idle.size() < options.max_idle_connections) {
      idle.push_back(std::move(owned));
    } else {
      owned->Close();
      loop.Retire(std::move(owned));
    }
    if (handlers.on_done) handlers.on_done(OkStatus());
  }

  void OnFailed(ClientConnection* connection, const Status& status) override {
    for (auto& candidate : idle) {
      if (candidate.get() != connection) continue;
      std::swap(candidate, idle.back());
      loop.Retire(std::move(idle.back()));
      idle.pop_back();
      return;
    }
    const auto it = active.find(connection->id());
    const ResponseHandlers handlers = connection->TakeHandlers();
    loop.Retire(std::move(it->second));
    active.erase(it);
    if (handlers.on_done) handlers.on_done(status);
  }

  std::span<char> Scratch() override { return scratch; }

  std::unique_ptr<ClientConnection> TakeConnection() {
    while (!idle.empty()) {
      std::unique_ptr<ClientConnection> connection = std::move(idle.back());
      idle.pop_back();
      if (connection->StillOpen()) return connection;
      connection->Close();
      loop.Retire(std::move(connection));
    }
    auto connection = std::make_unique<ClientConnection>(loop, *this, endpoint, options);
    connection->Connect(address);
    return connection;
  }

  EventLoop& loop;
  const Endpoint endpoint;
  const SocketAddress address;
  const ClientOptions options;
  std::vector<char> scratch;  // where every connection reads to
  RequestId next_id = 1;
  std::unordered_map<RequestId, std::unique_ptr<ClientConnection>> active;
  std::vector<std::unique_ptr<ClientConnection>> idle;  // most recently used last
};

Client::Client(EventLoop& loop, Endpoint endpoint, SocketAddress address, ClientOptions options)
    : impl_(std::make_unique<Impl>(loop, std::move(endpoint), std::move(address), options)) {}

Client::~Client() {
  for (auto& [id, connection] : impl_->active) {
    connection->Close();
    impl_->loop.Retire(std::move(connection));
  }
  for (auto& connection : impl_->idle) {
    connection->Close();
    impl_->loop.Retire(std::move(connection));
  }
}

Client::RequestId Client::Fetch(ClientRequest request, ResponseHandlers handlers) {
  const RequestId id = impl_->next_id++;
  std::unique_ptr<ClientConnection> connection = impl_->TakeConnection();
  ClientConnection* raw = connection.get();
  impl_->active.emplace(id, std::move(connection));
  raw->Start(id, std::move(request), std::move(handlers));
  return id;
}

void Client::Write(RequestId id, std::string_view bytes) {
  if (const auto it = impl_->active.find(id); it != impl_->active.end()) it->second->Write(bytes);
}

void Client::EndBody(RequestId id) {
  if (const auto it = impl_->active.find(id); it != impl_->active.end()) it->second->EndBody();
}

std::shared_ptr<Pipe> Client::UploadPipe(RequestId id) {
  const auto it = impl_->active.find(id);
  return it == impl_->active.end() ? nullptr : it->second->UploadPipe();
}

void Client::WritePiped(RequestId id) {
  if (const auto it = impl_->active.find(id); it != impl_->active.end()) it->second->WritePiped();
}

size_t Client::pending_bytes(RequestId id) const {
  const auto it = impl_->active.find(id);
  return it == impl_->active.end() ? 0 : it->second->pending_bytes();
}

void Client::Pause(RequestId id) {
  if (const auto it = impl_->active.find(id); it != impl_->active.end()) it->second->Pause();
}

void Client::Resume(RequestId id) {
  if (const auto it = impl_->active.find(id); it != impl_->active.end()) it->second->Resume();
}

void Client::Cancel(RequestId id) {
  const auto it = impl_->active.find(id);
  if (it == impl_->active.end()) return;
  it->second->Close();
  impl_->loop.Retire(std::move(it->second));
  impl_->active.erase(it);
}

size_t Client::num_active() const { return impl_->active.size(); }
size_t Client::num_idle() const { return impl_->idle.size(); }

Result<BlockingClient> BlockingClient::Create(const Endpoint& endpoint, ClientOptions options) {
  ASSIGN_OR_RETURN(SocketAddress address, Resolve(endpoint));
  ASSIGN_OR_RETURN(auto loop, EventLoop::Create(1));
  if (endpoint.tls && options.tls == nullptr) {
    ASSIGN_OR_RETURN(options.tls, TlsContext::ForClient({}));
  }
  auto client = std::make_unique<Client>(*loop, endpoint, std::move(address), options);
  return BlockingClient(std::move(loop), std::move(client));
}

BlockingClient::BlockingClient(std::unique_ptr<EventLoop> loop, std::unique_ptr<Client> client)
    : loop_(std::move(loop)), client_(std::move(client)) {}
BlockingClient::BlockingClient(BlockingClient&&) = default;
BlockingClient::~BlockingClient() = default;

BlockingClient& BlockingClient::operator=(BlockingClient&& other) {
  client_ = std::move(other.client_);  // before its loop
  loop_ = std::move(other.loop_);
  return *this;
}

Result<BlockingClient::Response> BlockingClient::FetchStream(
    ClientRequest request, const std::function<bool(int, std::string_view)>& on_data) {
  loop_->RefreshNow();  // the caller may have been away for long
  Response response;
  Status outcome;
  bool done = false;
  Client::RequestId id = 0;
  id = client_->Fetch(std::move(request),
                      {.on_head =
                           [&](int status, HeaderView headers) {
                             response.status = status;
                             for (const Header& header : headers) {
                               response.headers.emplace_back(header.name, header.value);
                             }
                           },
                       .on_data =
                           [&](std::string_view bytes) {
                             if (on_data(response.status, bytes)) return;
                             outcome = Error(ErrorCode::kCancelled, "stopped by the caller");
                             done = true;
                             client_->Cancel(id);
                           },
                       .on_done =
                           [&](const Status& status) {
                             outcome = status;
                             done = true;
                           }});
  loop_->RunUntil(done);
  if (!outcome.ok()) return outcome;
  return response;
}

Result<BlockingClient::Response> BlockingClient::Fetch(ClientRequest request,
                                                       size_t max_body_bytes) {
  std::string body;
  auto response = FetchStream(std::move(request), [&](int, std::string_view bytes) {
    if (body.size() + bytes.size() > max_body_bytes) return false;
    body.append(bytes);
    return true;
  });
  if (response.ok()) {
    response->body = std::move(body);
  } else if (response.status().code() == ErrorCode::kCancelled) {
    return Error(ErrorCode::kPayloadTooLarge, "the response body is over {} bytes", max_body_bytes);
  }
  return response;
}

}  // namespace hayate::http
