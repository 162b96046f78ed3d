#pragma once
// The files of web/, put here by CMake (hayate_embed in cmake/hayate_embed.cmake).

#include <span>
#include <string_view>

namespace hayate::console {

struct File {
  std::string_view name;   // "app.js"
  std::string_view bytes;  // of the program itself
  std::string_view hash;   // of the bytes, in hexadecimal
};

std::span<const File> Files();

}  // namespace hayate::console
