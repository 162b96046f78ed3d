#include "base/constant_time.h"

namespace hayate {

bool EqualConstantTime(std::string_view sent, std::string_view secret) {
  if (secret.empty()) return false;
  unsigned difference = sent.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < sent.size(); ++i) {
    difference |=
        static_cast<unsigned char>(sent[i]) ^ static_cast<unsigned char>(secret[i % secret.size()]);
  }
  return difference == 0;
}

}  // namespace hayate
