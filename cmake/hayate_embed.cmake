# hayate_embed(TARGET FOLDER): adds the definition of console::Files() to TARGET, with every file of
# FOLDER. A file that changes is embedded anew by the next build.
function(hayate_embed target folder)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*)
  set(arrays "")
  set(entries "")
  set(number 0)
  foreach(file ${files})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    get_filename_component(name ${file} NAME)
    file(READ ${file} bytes HEX)
    file(SHA256 ${file} hash)
    string(SUBSTRING ${hash} 0 32 hash)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
    string(APPEND arrays "constexpr unsigned char kFile${number}[] = {\n${bytes}\n};\n")
    string(APPEND entries "    {\"${name}\", Text(kFile${number}), \"${hash}\"},\n")
    math(EXPR number "${number} + 1")
  endforeach()
  set(source ${CMAKE_BINARY_DIR}/generated/${target}_files.cc)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT "#include \"console/files.h\"

namespace hayate::console {
namespace {

${arrays}
template <size_t kSize>
std::string_view Text(const unsigned char (&bytes)[kSize]) {
  return {reinterpret_cast<const char*>(bytes), kSize};
}

}  // namespace

std::span<const File> Files() {
  static const File kFiles[] = {
${entries}  };
  return kFiles;
}

}  // namespace hayate::console
")
  target_sources(${target} PRIVATE ${source})
endfunction()
