#include "weights/detail/gguf_value.h"

#include <concepts>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"

namespace hayate::weights::detail {
namespace {

constexpr int kMaxArrayDepth = 4;

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

class ValueReader {
 public:
  explicit ValueReader(ByteReader& reader) : reader_(reader) {}

  Result<MetadataValue> Read() {
    ASSIGN_OR_RETURN(const ValueType type, ReadValueType());
    if (type == ValueType::kArray) return ReadArray(1);
    return ReadScalar(type);
  }

 private:
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
    if (count == 0) return MetadataValue(Untyped::kEmptyArray);
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
    return MetadataValue(Untyped::kNestedArray);
  }

  ByteReader& reader_;
};

}  // namespace

Result<MetadataValue> ReadGgufValue(ByteReader& reader) { return ValueReader(reader).Read(); }

}  // namespace hayate::weights::detail
