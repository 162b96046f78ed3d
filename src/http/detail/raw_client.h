#pragma once
// For tests: a blocking loopback connection that sends exactly the bytes it is given, so that a
// test can be a broken, slow or hostile client. Every wait ends after kPatience.

#include <string>
#include <string_view>

#include "http/detail/socket.h"

namespace hayate::http {

class RawClient {
 public:
  explicit RawClient(uint16_t port);

  // False when the peer no longer takes bytes.
  bool Send(std::string_view bytes);
  // Reads until what has been received since the last call contains `marker`, and returns
  // everything up to its end. Shorter at the end of the connection or of patience.
  std::string ReadUntil(std::string_view marker);
  // One response with a Content-Length: head and body.
  std::string ReadResponse();
  // Everything up to the peer's close. `closed()` says whether that came.
  std::string ReadAll();
  bool closed() const { return closed_; }
  // Lets the kernel hold few bytes for this side. Before the peer sends.
  void ShrinkReceiveBuffer();
  void HalfClose() { socket_.ShutdownWrite(); }
  // RST instead of FIN.
  void Reset();

 private:
  static constexpr int kPatienceMs = 20'000;
  bool ReadSome();

  Socket socket_;
  std::string received_;
  bool closed_ = false;
};

}  // namespace hayate::http
