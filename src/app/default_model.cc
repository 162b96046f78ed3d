#include "app/default_model.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "app/fetch_model_script.h"
#include "base/error.h"

namespace hayate::app {
namespace {

// Reads a descriptor to its end.
std::string ReadAll(int fd) {
  std::string text;
  char chunk[4096];
  for (;;) {
    const ssize_t count = ::read(fd, chunk, sizeof(chunk));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(chunk, static_cast<size_t>(count));
  }
}

}  // namespace

Result<std::string> FindOrFetchDefaultModel() {
  int out[2];
  if (::pipe(out) != 0) return Error(ErrorCode::kIo, "pipe: {}", std::strerror(errno));
  const pid_t child = ::fork();
  if (child < 0) return Error(ErrorCode::kIo, "fork: {}", std::strerror(errno));
  if (child == 0) {
    ::dup2(out[1], STDOUT_FILENO);
    ::close(out[0]);
    ::close(out[1]);
    // Our caller may have blocked SIGINT; a download must still end with Ctrl-C.
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::execlp("bash", "bash", "-c", kFetchModelScript, "fetch_model", nullptr);
    _exit(127);
  }
  ::close(out[1]);
  std::string path = ReadAll(out[0]);
  ::close(out[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  while (!path.empty() && path.back() == '\n') path.pop_back();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || path.empty()) {
    return Status(ErrorCode::kUnavailable,
                  "the default model is not there and could not be fetched (see above); "
                  "name a model with --model-path");
  }
  return path;
}

}  // namespace hayate::app
