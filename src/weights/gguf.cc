#include "weights/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "weights/detail/byte_reader.h"
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
constexpr int kMaxArrayDepth = 4;
// The shortest possible entries; counts beyond what the rest of the file can hold are refused
// early.
constexpr uint64_t kMinKeyValueBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorInfoBytes = 8 + 4 + 8 + 4 + 8;

enum class ValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// Bytes of the smallest value of a type; 0 for an unknown type.
uint64_t MinValueBytes(ValueType type) {
  switch (type) {
    case ValueType::kUint8:
    case ValueType::kInt8:
    case ValueType::kBool:
      return 1;
    case ValueType::kUint16:
    case ValueType::kInt16:
      return 2;
    case ValueType::kUint32:
    case ValueType::kInt32:
    case ValueType::kFloat32:
      return 4;
    case ValueType::kUint64:
    case ValueType::kInt64:
    case ValueType::kFloat64:
    case ValueType::kString:
      return 8;
    case ValueType::kArray:
      return 12;
  }
  return 0;
}

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
    Result<MetadataValue> value = ReadTypedValue();
    if (!value.ok()) return value.status().Under(fmt::format("metadata key '{}'", *key));
    if (!contents_.metadata.Insert(std::string(*key), std::move(value).value())) {
      return Error(ErrorCode::kDataLoss, "offset {}: metadata key '{}' appears twice", begin, *key);
    }
    return OkStatus();
  }

  Result<MetadataValue> ReadTypedValue() {
    ASSIGN_OR_RETURN(const ValueType type, ReadValueType());
    if (type == ValueType::kArray) return ReadArray(1);
    return ReadScalar(type);
  }

  Result<ValueType> ReadValueType() {
    const uint64_t begin = reader_.offset();
    ASSIGN_OR_RETURN(const uint32_t type, reader_.Read<uint32_t>("a value type"));
    if (MinValueBytes(static_cast<ValueType>(type)) == 0) {
      return Error(ErrorCode::kDataLoss, "offset {}: unknown value type {}", begin, type);
    }
    return static_cast<ValueType>(type);
  }

  template <typename T>
  Result<MetadataValue> ReadInteger() {
    ASSIGN_OR_RETURN(const T value, reader_.Read<T>("an integer"));
    if constexpr (std::same_as<T, uint64_t>) {
      if (value > uint64_t{INT64_MAX}) return MetadataValue(static_cast<double>(value));
    }
    return MetadataValue(static_cast<int64_t>(value));
  }

  Result<MetadataValue> ReadScalar(ValueType type) {
    switch (type) {
      case ValueType::kUint8:
        return ReadInteger<uint8_t>();
      case ValueType::kInt8:
        return ReadInteger<int8_t>();
      case ValueType::kUint16:
        return ReadInteger<uint16_t>();
      case ValueType::kInt16:
        return ReadInteger<int16_t>();
      case ValueType::kUint32:
        return ReadInteger<uint32_t>();
      case ValueType::kInt32:
        return ReadInteger<int32_t>();
      case ValueType::kUint64:
        return ReadInteger<uint64_t>();
      case ValueType::kInt64:
        return ReadInteger<int64_t>();
      case ValueType::kFloat32: {
        ASSIGN_OR_RETURN(const float value, reader_.Read<float>("a float"));
        return MetadataValue(static_cast<double>(value));
      }
      case ValueType::kFloat64: {
        ASSIGN_OR_RETURN(const double value, reader_.Read<double>("a float"));
        return MetadataValue(value);
      }
      case ValueType::kBool: {
        ASSIGN_OR_RETURN(const bool value, ReadBool());
        return MetadataValue(value);
      }
      case ValueType::kString: {
        ASSIGN_OR_RETURN(const std::string_view text, ReadText());
        return MetadataValue(text);
      }
      case ValueType::kArray:
        break;
    }
    CHECK(false) << "value type " << static_cast<uint32_t>(type) << " is not a scalar";
    return MetadataValue();
  }

  Result<bool> ReadBool() {
    const uint64_t begin = reader_.offset();
    ASSIGN_OR_RETURN(const uint8_t value, reader_.Read<uint8_t>("a boolean"));
    if (value > 1) {
      return Error(ErrorCode::kDataLoss, "offset {}: {} is not a boolean", begin, value);
    }
    return value == 1;
  }

  Result<std::string_view> ReadText() { return reader_.ReadString("a string", reader_.size()); }

  Result<MetadataValue> ReadArray(int depth) {
    const uint64_t begin = reader_.offset();
    ASSIGN_OR_RETURN(const ValueType type, ReadValueType());
    ASSIGN_OR_RETURN(const uint64_t count, reader_.Read<uint64_t>("an array length"));
    if (count > reader_.remaining() / MinValueBytes(type)) {
      return Error(ErrorCode::kDataLoss,
                   "offset {}: an array of {} values does not fit in the file", begin, count);
    }
    if (type == ValueType::kArray) return SkipNestedArrays(depth, count);
    if (count == 0) return MetadataValue(OpaqueValue{"an empty array"});
    switch (type) {
      case ValueType::kBool:
        return ReadItems<bool>(count, [&] { return ReadBool(); });
      case ValueType::kString:
        return ReadItems<std::string_view>(count, [&] { return ReadText(); });
      case ValueType::kFloat32:
      case ValueType::kFloat64:
        return ReadNumbers<double>(type, count);
      default:
        return ReadNumbers<int64_t>(type, count);
    }
  }

  template <typename T, typename ReadItem>
  Result<MetadataValue> ReadItems(uint64_t count, ReadItem read_item) {
    std::vector<T> items;
    items.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(const T item, read_item());
      items.push_back(item);
    }
    return MetadataValue(std::move(items));
  }

  template <typename T>
  Result<MetadataValue> ReadNumbers(ValueType type, uint64_t count) {
    return ReadItems<T>(count, [&]() -> Result<T> {
      const uint64_t begin = reader_.offset();
      ASSIGN_OR_RETURN(const MetadataValue value, ReadScalar(type));
      if (const T* number = std::get_if<T>(&value)) return *number;
      return Error(ErrorCode::kUnsupported, "offset {}: an array item beyond 2^63", begin);
    });
  }

  // No known model needs arrays of arrays; they are checked and passed over.
  Result<MetadataValue> SkipNestedArrays(int depth, uint64_t count) {
    if (depth >= kMaxArrayDepth) {
      return Error(ErrorCode::kDataLoss, "offset {}: arrays are nested deeper than {}",
                   reader_.offset(), kMaxArrayDepth);
    }
    for (uint64_t i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN([[maybe_unused]] const MetadataValue skipped, ReadArray(depth + 1));
    }
    return MetadataValue(OpaqueValue{"a nested array"});
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
