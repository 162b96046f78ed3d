#include "weights/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "weights/detail/byte_reader.h"
#include "weights/detail/gguf_value.h"
#include "weights/detail/tensor_extent.h"

namespace hayate::weights {
namespace {

using detail::ByteReader;

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

constexpr uint64_t kMaxTensors = 1'000'000;
constexpr uint64_t kMaxKeyValues = 1'000'000;
constexpr uint64_t kMaxKeyBytes = 65'535;  // the format's own limit
constexpr uint64_t kMaxTensorNameBytes = 1'024;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
// The shortest possible entries; counts beyond what the rest of the file can hold are refused
// early.
constexpr uint64_t kMinKeyValueBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorInfoBytes = 8 + 4 + 8 + 4 + 8;

struct TensorType {
  std::string_view name;
  std::optional<DType> dtype;  // empty: a type that Hayate does not read
};

// By the type number in the file.
constexpr TensorType kTensorTypes[] = {
    {"F32", DType::kF32},
    {"F16", DType::kF16},
    {"Q4_0", DType::kQ4_0},
    {"Q4_1", DType::kQ4_1},
    {"Q4_2", {}},
    {"Q4_3", {}},
    {"Q5_0", DType::kQ5_0},
    {"Q5_1", DType::kQ5_1},
    {"Q8_0", DType::kQ8_0},
    {"Q8_1", {}},
    {"Q2_K", DType::kQ2_K},
    {"Q3_K", DType::kQ3_K},
    {"Q4_K", DType::kQ4_K},
    {"Q5_K", DType::kQ5_K},
    {"Q6_K", DType::kQ6_K},
    {"Q8_K", {}},
    {"IQ2_XXS", {}},
    {"IQ2_XS", {}},
    {"IQ3_XXS", {}},
    {"IQ1_S", {}},
    {"IQ4_NL", DType::kIQ4_NL},
    {"IQ3_S", {}},
    {"IQ2_S", {}},
    {"IQ4_XS", {}},
    {"I8", DType::kI8},
    {"I16", DType::kI16},
    {"I32", DType::kI32},
    {"I64", DType::kI64},
    {"F64", {}},
    {"IQ1_M", {}},
    {"BF16", DType::kBF16},
    {"Q4_0_4_4", {}},
    {"Q4_0_4_8", {}},
    {"Q4_0_8_8", {}},
    {"TQ1_0", {}},
    {"TQ2_0", {}},
    {"IQ4_NL_4_4", {}},
    {"IQ4_NL_4_8", {}},
    {"IQ4_NL_8_8", {}},
    {"MXFP4", DType::kMXFP4},
};

class Parser {
 public:
  explicit Parser(std::span<const std::byte> file) : reader_(file) {}

  Result<GgufContents> Parse() {
    RETURN_IF_ERROR(ReadHeader());
    for (uint64_t i = 0; i < num_key_values_; ++i) RETURN_IF_ERROR(ReadKeyValue(i));
    RETURN_IF_ERROR(ReadAlignment());
    for (uint64_t i = 0; i < num_tensors_; ++i) RETURN_IF_ERROR(ReadTensorInfo(i));
    RETURN_IF_ERROR(PlaceTensors());
    return std::move(contents_);
  }

 private:
  Status ReadHeader() {
    ASSIGN_OR_RETURN(const uint32_t magic, reader_.Read<uint32_t>("the magic number"));
    if (magic != 0x46554747) return Error(ErrorCode::kDataLoss, "offset 0: not a GGUF file");
    ASSIGN_OR_RETURN(contents_.version, reader_.Read<uint32_t>("the version"));
    if (contents_.version != 2 && contents_.version != 3) {
      const bool swapped = contents_.version != 0 && (contents_.version & 0xFFFF) == 0;
      return Error(ErrorCode::kUnsupported,
                   "offset 4: GGUF version {}{}; versions 2 and 3 are read", contents_.version,
                   swapped ? " (a big-endian file)" : "");
    }
    ASSIGN_OR_RETURN(num_tensors_, reader_.Read<uint64_t>("the tensor count"));
    ASSIGN_OR_RETURN(num_key_values_, reader_.Read<uint64_t>("the key count"));
    if (num_tensors_ > std::min(kMaxTensors, reader_.remaining() / kMinTensorInfoBytes)) {
      return Error(ErrorCode::kDataLoss, "offset 8: {} tensors cannot fit in {} bytes",
                   num_tensors_, reader_.size());
    }
    if (num_key_values_ > std::min(kMaxKeyValues, reader_.remaining() / kMinKeyValueBytes)) {
      return Error(ErrorCode::kDataLoss, "offset 16: {} metadata keys cannot fit in {} bytes",
                   num_key_values_, reader_.size());
    }
    return OkStatus();
  }

  Status ReadKeyValue(uint64_t index) {
    const uint64_t begin = reader_.offset();
    Result<std::string_view> key = reader_.ReadString("a metadata key", kMaxKeyBytes);
    if (!key.ok()) return key.status().Under(fmt::format("metadata key {}", index));
    Result<MetadataValue> value = detail::ReadGgufValue(reader_);
    if (!value.ok()) return value.status().Under(fmt::format("metadata key '{}'", *key));
    if (!contents_.metadata.Insert(std::string(*key), std::move(value).value())) {
      return Error(ErrorCode::kDataLoss, "offset {}: metadata key '{}' appears twice", begin, *key);
    }
    return OkStatus();
  }

  Status ReadAlignment() {
    ASSIGN_OR_RETURN(const int64_t alignment, contents_.metadata.GetInt("general.alignment", 32));
    alignment_ = static_cast<uint64_t>(alignment);
    if (alignment <= 0 || alignment_ > kMaxAlignment || !std::has_single_bit(alignment_)) {
      return Error(ErrorCode::kDataLoss,
                   "metadata key 'general.alignment': {} is not a power of two up to {}", alignment,
                   kMaxAlignment);
    }
    return OkStatus();
  }

  Status ReadTensorInfo(uint64_t index) {
    Result<std::string_view> name = reader_.ReadString("a tensor name", kMaxTensorNameBytes);
    if (!name.ok()) return name.status().Under(fmt::format("tensor {}", index));
    const uint64_t begin = reader_.offset();
    TensorInfo info;
    if (Status status = ReadTensorFields(info); !status.ok()) {
      return status.Under(fmt::format("tensor '{}'", *name));
    }
    if (!contents_.tensors.emplace(*name, info).second) {
      return Error(ErrorCode::kDataLoss, "tensor '{}': offset {}: the name appears twice", *name,
                   begin);
    }
    return OkStatus();
  }

  Status ReadTensorFields(TensorInfo& info) {
    const uint64_t begin = reader_.offset();
    ASSIGN_OR_RETURN(const uint32_t rank, reader_.Read<uint32_t>("the rank"));
    if (rank < 1 || rank > uint32_t{Shape::kMaxRank}) {
      return Error(ErrorCode::kDataLoss, "offset {}: rank {}, must be 1 to {}", begin, rank,
                   Shape::kMaxRank);
    }
    std::array<uint64_t, Shape::kMaxRank> extents{};  // innermost first
    for (uint32_t i = 0; i < rank; ++i) {
      ASSIGN_OR_RETURN(extents[i], reader_.Read<uint64_t>("an extent"));
    }
    const uint64_t type_offset = reader_.offset();
    ASSIGN_OR_RETURN(const uint32_t type, reader_.Read<uint32_t>("the tensor type"));
    ASSIGN_OR_RETURN(info.offset, reader_.Read<uint64_t>("the data offset"));
    if (type >= std::size(kTensorTypes) || !kTensorTypes[type].dtype) {
      return Error(ErrorCode::kUnsupported, "offset {}: tensor type {} ({}) is not supported",
                   type_offset, type,
                   type < std::size(kTensorTypes) ? kTensorTypes[type].name : "unknown");
    }
    info.dtype = *kTensorTypes[type].dtype;
    std::reverse(extents.begin(), extents.begin() + rank);
    Status status = detail::SetShape(std::span(extents).first(rank), info);
    return status.ok() ? status : status.Under(fmt::format("offset {}", begin));
  }

  // Turns offsets into the data section into offsets into the file, and checks where tensors lie.
  Status PlaceTensors() {
    const uint64_t data_begin = (reader_.offset() + alignment_ - 1) / alignment_ * alignment_;
    const uint64_t data_bytes = reader_.size() > data_begin ? reader_.size() - data_begin : 0;
    for (auto& [name, info] : contents_.tensors) {
      if (info.offset % alignment_ != 0) {
        return Error(ErrorCode::kDataLoss, "tensor '{}': offset {} + {} is not a multiple of {}",
                     name, data_begin, info.offset, alignment_);
      }
      if (info.offset > data_bytes || info.bytes > data_bytes - info.offset) {
        return Error(ErrorCode::kDataLoss,
                     "tensor '{}': {} bytes at offset {} + {} reach beyond the file of {} bytes",
                     name, info.bytes, data_begin, info.offset, reader_.size());
      }
      info.offset += data_begin;
    }
    return detail::CheckNoOverlap(contents_.tensors);
  }

  ByteReader reader_;
  uint64_t num_tensors_ = 0;
  uint64_t num_key_values_ = 0;
  uint64_t alignment_ = 32;
  GgufContents contents_;
};

}  // namespace

Result<GgufContents> ParseGguf(std::span<const std::byte> file) { return Parser(file).Parse(); }

}  // namespace hayate::weights
