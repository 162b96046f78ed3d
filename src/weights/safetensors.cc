#include "weights/safetensors.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "weights/detail/byte_reader.h"
#include "weights/detail/tensor_extent.h"

namespace hayate::weights {
namespace {

namespace dom = simdjson::dom;

static_assert(std::endian::native == std::endian::little, "safetensors is read in place");

constexpr size_t kMaxJsonDepth = 8;  // header > tensor > array is 3
constexpr size_t kMaxIndexBytes = size_t{64} << 20;

Result<dom::object> ParseObject(dom::parser& parser, std::string_view json) {
  dom::object object;
  simdjson::error_code code = parser.allocate(json.size() + 1, kMaxJsonDepth);
  if (code == simdjson::SUCCESS) code = parser.parse(json.data(), json.size()).get(object);
  if (code != simdjson::SUCCESS) {
    return Error(ErrorCode::kDataLoss, "not a JSON object: {}", simdjson::error_message(code));
  }
  return object;
}

Result<DType> ParseDType(dom::object entry) {
  std::string_view name;
  if (entry["dtype"].get(name) != simdjson::SUCCESS) {
    return Error(ErrorCode::kDataLoss, "'dtype' is missing or not a string");
  }
  const std::optional<DType> dtype = DTypeFromName(name);
  if (!dtype || IsBlockType(*dtype)) {
    return Error(ErrorCode::kUnsupported, "dtype {} is not supported", name);
  }
  return *dtype;
}

Status ParseShape(dom::object entry, TensorInfo& info) {
  dom::array items;
  if (entry["shape"].get(items) != simdjson::SUCCESS) {
    return Error(ErrorCode::kDataLoss, "'shape' is missing or not an array");
  }
  std::array<uint64_t, Shape::kMaxRank> extents{};
  size_t rank = 0;
  for (const dom::element item : items) {
    if (rank == extents.size()) {
      return Error(ErrorCode::kUnsupported, "rank above {}", Shape::kMaxRank);
    }
    if (item.get(extents[rank++]) != simdjson::SUCCESS) {
      return Error(ErrorCode::kDataLoss, "'shape' holds something else than non-negative integers");
    }
  }
  return detail::SetShape(std::span(extents).first(rank), info);
}

// `data_begin` and `data_bytes` place the data section in the file.
Status ParseOffsets(dom::object entry, uint64_t data_begin, uint64_t data_bytes, TensorInfo& info) {
  dom::array items;
  uint64_t begin = 0, end = 0;
  if (entry["data_offsets"].get(items) != simdjson::SUCCESS || items.size() != 2 ||
      items.at(0).get(begin) != simdjson::SUCCESS || items.at(1).get(end) != simdjson::SUCCESS) {
    return Error(ErrorCode::kDataLoss, "'data_offsets' must be two non-negative integers");
  }
  if (begin > end || end > data_bytes) {
    return Error(ErrorCode::kDataLoss,
                 "data_offsets [{}, {}] lie outside the {} bytes of data that "
                 "begin at offset {}",
                 begin, end, data_bytes, data_begin);
  }
  if (end - begin != info.bytes) {
    return Error(ErrorCode::kDataLoss, "offset {}: {} bytes, but {} {} takes {}",
                 data_begin + begin, end - begin, Info(info.dtype).name, info.shape.ToString(),
                 info.bytes);
  }
  info.offset = data_begin + begin;
  return OkStatus();
}

Result<TensorInfo> ParseEntry(dom::element element, uint64_t data_begin, uint64_t data_bytes) {
  dom::object entry;
  if (element.get(entry) != simdjson::SUCCESS) {
    return Error(ErrorCode::kDataLoss, "its header entry is not an object");
  }
  TensorInfo info;
  ASSIGN_OR_RETURN(info.dtype, ParseDType(entry));
  RETURN_IF_ERROR(ParseShape(entry, info));
  RETURN_IF_ERROR(ParseOffsets(entry, data_begin, data_bytes, info));
  return info;
}

// The format has no padding: tensors that do not overlap and together fill the data leave no gap.
Status CheckCovered(const TensorIndex& tensors, uint64_t data_begin, uint64_t data_bytes) {
  RETURN_IF_ERROR(detail::CheckNoOverlap(tensors));
  uint64_t covered = 0;
  for (const auto& [name, info] : tensors) covered += info.bytes;
  if (covered != data_bytes) {
    return Error(ErrorCode::kDataLoss, "offset {}: {} bytes of data, but the tensors take {}",
                 data_begin, data_bytes, covered);
  }
  return OkStatus();
}

bool IsPlainFileName(std::string_view name) {
  return name.ends_with(".safetensors") && name.find_first_of("/\\") == std::string_view::npos &&
         name.find('\0') == std::string_view::npos && !name.starts_with('.');
}

}  // namespace

Result<TensorIndex> ParseSafetensors(std::span<const std::byte> file) {
  detail::ByteReader reader(file);
  ASSIGN_OR_RETURN(const uint64_t header_bytes, reader.Read<uint64_t>("the header length"));
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    return Error(ErrorCode::kDataLoss, "offset 0: a header of {} bytes, at most {} are read",
                 header_bytes, kMaxSafetensorsHeaderBytes);
  }
  if (header_bytes > reader.remaining()) {
    return Error(ErrorCode::kDataLoss, "offset 8: the file ends inside the header ({} of {} bytes)",
                 reader.remaining(), header_bytes);
  }
  const auto* text = reinterpret_cast<const char*>(file.data() + reader.offset());
  dom::parser parser;
  Result<dom::object> header = ParseObject(parser, {text, header_bytes});
  if (!header.ok()) return header.status().Under("offset 8: header");
  const uint64_t data_begin = reader.offset() + header_bytes;
  const uint64_t data_bytes = file.size() - data_begin;

  TensorIndex tensors;
  for (const auto [name, element] : *header) {
    if (name == "__metadata__") continue;
    Result<TensorInfo> info = ParseEntry(element, data_begin, data_bytes);
    if (!info.ok()) return info.status().Under(fmt::format("tensor '{}'", name));
    if (!tensors.emplace(name, *info).second) {
      return Error(ErrorCode::kDataLoss, "tensor '{}': the name appears twice in the header", name);
    }
  }
  RETURN_IF_ERROR(CheckCovered(tensors, data_begin, data_bytes));
  return tensors;
}

Result<std::map<std::string, std::string>> ParseSafetensorsIndex(std::string_view json) {
  if (json.size() > kMaxIndexBytes) {
    return Error(ErrorCode::kPayloadTooLarge, "{} bytes of index, at most {} are read", json.size(),
                 kMaxIndexBytes);
  }
  dom::parser parser;
  ASSIGN_OR_RETURN(const dom::object root, ParseObject(parser, json));
  dom::object entries;
  if (root["weight_map"].get(entries) != simdjson::SUCCESS) {
    return Error(ErrorCode::kDataLoss, "'weight_map' is missing or not an object");
  }
  std::map<std::string, std::string> files;
  for (const auto [name, element] : entries) {
    std::string_view file;
    if (element.get(file) != simdjson::SUCCESS || !IsPlainFileName(file)) {
      return Error(ErrorCode::kDataLoss,
                   "tensor '{}': its file must be the plain name of a .safetensors file", name);
    }
    if (!files.emplace(name, file).second) {
      return Error(ErrorCode::kDataLoss, "tensor '{}' is listed twice", name);
    }
  }
  return files;
}

}  // namespace hayate::weights
