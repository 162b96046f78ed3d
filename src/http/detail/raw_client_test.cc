#include "http/detail/raw_client.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <charconv>

namespace hayate::http {

RawClient::RawClient(uint16_t port) {
  auto address = Resolve({"127.0.0.1", port});
  socket_ = std::move(*Socket::Connect(*address));
  pollfd wait{socket_.fd(), POLLOUT, 0};
  poll(&wait, 1, kPatienceMs);
}

bool RawClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const IoResult result = socket_.Write(bytes);
    if (result.kind == IoResult::Kind::kOk) {
      bytes.remove_prefix(result.num_bytes);
    } else if (result.kind == IoResult::Kind::kWouldBlock) {
      pollfd wait{socket_.fd(), POLLOUT, 0};
      if (poll(&wait, 1, kPatienceMs) <= 0) return false;
    } else {
      return false;
    }
  }
  return true;
}

bool RawClient::ReadSome() {
  pollfd wait{socket_.fd(), POLLIN, 0};
  if (closed_ || poll(&wait, 1, kPatienceMs) <= 0) return false;
  char buffer[16384];
  const IoResult result = socket_.Read(buffer);
  if (result.kind != IoResult::Kind::kOk) {
    closed_ = result.kind != IoResult::Kind::kWouldBlock;
    return !closed_;
  }
  received_.append(buffer, result.num_bytes);
  return true;
}

std::string RawClient::ReadUntil(std::string_view marker) {
  size_t found;
  while ((found = received_.find(marker)) == std::string::npos) {
    if (!ReadSome()) return std::exchange(received_, {});
  }
  std::string out = received_.substr(0, found + marker.size());
  received_.erase(0, out.size());
  return out;
}

std::string RawClient::ReadResponse() {
  std::string out = ReadUntil("\r\n\r\n");
  constexpr std::string_view kField = "Content-Length: ";
  size_t length = 0;
  if (const size_t at = out.find(kField); at != std::string::npos) {
    std::from_chars(out.data() + at + kField.size(), out.data() + out.size(), length);
  }
  while (received_.size() < length && ReadSome()) {
  }
  out += received_.substr(0, length);
  received_.erase(0, std::min(length, received_.size()));
  return out;
}

std::string RawClient::ReadAll() {
  while (ReadSome()) {
  }
  return std::exchange(received_, {});
}

void RawClient::ShrinkReceiveBuffer() {
  const int bytes = 32 << 10;
  setsockopt(socket_.fd(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

void RawClient::Reset() {
  const linger hard{1, 0};
  setsockopt(socket_.fd(), SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  socket_.Close();
}

}  // namespace hayate::http
