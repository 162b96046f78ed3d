// Finding and opening the files of a checkpoint.

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "weights/checkpoint.h"
#include "weights/detail/optional_file.h"
#include "weights/gguf.h"
#include "weights/safetensors.h"

namespace hayate::weights {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFiles = 4'096;
constexpr size_t kMaxConfigBytes = size_t{8} << 20;
constexpr size_t kMaxIndexBytes = size_t{64} << 20;
constexpr std::string_view kIndexName = "model.safetensors.index.json";

enum class Contents : uint8_t { kEverything, kConfigOnly };

Result<Metadata> ParseOptional(const std::string& text, const fs::path& path) {
  if (text.empty()) return Metadata();
  Result<Metadata> metadata = Metadata::FromJson(text);
  if (!metadata.ok()) return metadata.status().Under(path.string());
  return metadata;
}

// Files of a directory with this ending, by name.
Result<std::vector<fs::path>> ListFiles(const fs::path& directory, std::string_view ending) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().ends_with(ending)) paths.push_back(it->path());
    if (paths.size() > kMaxFiles) {
      return Error(ErrorCode::kUnsupported, "{}: more than {} {} files", directory.string(),
                   kMaxFiles, ending);
    }
  }
  if (error) return Error(ErrorCode::kIo, "{}: {}", directory.string(), error.message());
  std::ranges::sort(paths);
  return paths;
}

// "model-00001-of-00003.gguf": the path of part `number`, counted from 1.
Result<fs::path> GgufPart(const fs::path& first, int64_t number, int64_t count) {
  const std::string name = first.filename().string();
  const std::string ending = fmt::format("-00001-of-{:05}.gguf", count);
  if (!name.ends_with(ending)) {
    return Error(ErrorCode::kInvalidArgument,
                 "{}: one of {} parts; open the part whose name ends in {}", first.string(), count,
                 ending);
  }
  const std::string stem = name.substr(0, name.size() - ending.size());
  return first.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", stem, number, count);
}

}  // namespace

class CheckpointLoader {
 public:
  CheckpointLoader(const fs::path& path, Contents contents) : contents_(contents) {
    checkpoint_.path_ = path;
  }

  Result<Checkpoint> Load() {
    const fs::path& path = checkpoint_.path_;
    std::error_code error;
    if (!fs::exists(path, error)) {
      return Error(ErrorCode::kNotFound, "{}: no such file or directory", path.string());
    }
    if (fs::is_directory(path, error)) {
      RETURN_IF_ERROR(LoadDirectory());
    } else if (path.extension() == ".gguf") {
      RETURN_IF_ERROR(LoadGguf(path));
    } else if (path.extension() == ".safetensors") {
      checkpoint_.directory_ = path.parent_path();
      RETURN_IF_ERROR(LoadConfig());
      RETURN_IF_ERROR(LoadSafetensors({path}));
    } else {
      return Error(ErrorCode::kUnsupported,
                   "{}: neither a .gguf or .safetensors file nor a directory", path.string());
    }
    return std::move(checkpoint_);
  }

 private:
  Status LoadDirectory() {
    const fs::path& directory = checkpoint_.path_;
    ASSIGN_OR_RETURN(const std::vector<fs::path> safetensors, ListFiles(directory, ".safetensors"));
    ASSIGN_OR_RETURN(const std::vector<fs::path> ggufs, ListFiles(directory, ".gguf"));
    if (safetensors.empty() && !ggufs.empty()) {
      const bool one_model =
          ggufs.size() == 1 || ggufs[0].filename().string().find("-00001-of-") != std::string::npos;
      if (one_model) return LoadGguf(ggufs[0]);
      return Error(ErrorCode::kInvalidArgument, "{}: {} .gguf files; name one of them",
                   directory.string(), ggufs.size());
    }
    checkpoint_.directory_ = directory;
    RETURN_IF_ERROR(LoadConfig());
    if (checkpoint_.config_json_.empty()) {
      return Error(ErrorCode::kNotFound, "{}: no config.json and no .gguf file",
                   directory.string());
    }
    if (contents_ == Contents::kConfigOnly) return OkStatus();
    return LoadSafetensorsDirectory(safetensors);
  }

  Status LoadSafetensorsDirectory(const std::vector<fs::path>& present) {
    const fs::path& directory = checkpoint_.directory_;
    const fs::path index_path = directory / kIndexName;
    ASSIGN_OR_RETURN(const std::string index, detail::ReadOptionalFile(index_path, kMaxIndexBytes));
    if (!index.empty()) return LoadSharded(index_path, index);
    const fs::path single = directory / "model.safetensors";
    if (std::ranges::find(present, single) != present.end()) return LoadSafetensors({single});
    if (present.size() == 1) return LoadSafetensors(present);
    return Error(ErrorCode::kNotFound,
                 "{}: {} .safetensors files and no {} to say which belong to the model",
                 directory.string(), present.size(), kIndexName);
  }

  Status LoadSharded(const fs::path& index_path, const std::string& json) {
    auto entries = ParseSafetensorsIndex(json);
    if (!entries.ok()) return entries.status().Under(index_path.string());
    std::set<std::string> names;
    for (const auto& [tensor, file] : *entries) names.insert(file);
    if (names.size() > kMaxFiles) {
      return Error(ErrorCode::kUnsupported, "{}: more than {} files", index_path.string(),
                   kMaxFiles);
    }
    std::vector<fs::path> paths;
    for (const std::string& name : names) paths.push_back(checkpoint_.directory_ / name);
    RETURN_IF_ERROR(LoadSafetensors(paths));
    for (const auto& [tensor, file] : *entries) {
      const auto found = checkpoint_.tensors_.find(tensor);
      if (found == checkpoint_.tensors_.end() ||
          paths[static_cast<size_t>(found->second.file_index)].filename() != file) {
        return Error(ErrorCode::kDataLoss, "{}: tensor '{}' is not in {}", index_path.string(),
                     tensor, file);
      }
    }
    return OkStatus();
  }

  Status LoadSafetensors(const std::vector<fs::path>& paths) {
    checkpoint_.format_ = CheckpointFormat::kSafetensors;
    if (contents_ == Contents::kConfigOnly) return OkStatus();
    for (const fs::path& path : paths) {
      ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
      Result<TensorIndex> tensors = ParseSafetensors(file.bytes());
      if (!tensors.ok()) return tensors.status().Under(path.string());
      RETURN_IF_ERROR(Add(std::move(file), std::move(*tensors)));
    }
    return OkStatus();
  }

  Status LoadGguf(const fs::path& path) {
    checkpoint_.format_ = CheckpointFormat::kGguf;
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
    Result<GgufContents> contents = ParseGguf(file.bytes());
    if (!contents.ok()) return contents.status().Under(path.string());
    checkpoint_.metadata_ = std::move(contents->metadata);
    Result<std::string_view> architecture = checkpoint_.metadata_.GetString("general.architecture");
    if (!architecture.ok()) return architecture.status().Under(path.string());
    checkpoint_.architecture_ = *architecture;
    const Result<int64_t> num_parts = checkpoint_.metadata_.GetInt("split.count", 1);
    if (!num_parts.ok()) return num_parts.status().Under(path.string());
    RETURN_IF_ERROR(Add(std::move(file), std::move(contents->tensors)));
    if (*num_parts > 1) RETURN_IF_ERROR(LoadGgufParts(path, *num_parts));
    if (contents_ == Contents::kConfigOnly) checkpoint_.tensors_.clear();
    return OkStatus();
  }

  // The parts after the first: their tensors belong to the model, their metadata says only which
  // part they are.
  Status LoadGgufParts(const fs::path& first, int64_t num_parts) {
    if (num_parts > static_cast<int64_t>(kMaxFiles)) {
      return Error(ErrorCode::kUnsupported, "{}: {} parts", first.string(), num_parts);
    }
    for (int64_t number = 1; number <= num_parts; ++number) {
      ASSIGN_OR_RETURN(const fs::path path, GgufPart(first, number, num_parts));
      if (number == 1 || contents_ == Contents::kConfigOnly) continue;
      ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
      Result<GgufContents> contents = ParseGguf(file.bytes());
      if (!contents.ok()) return contents.status().Under(path.string());
      const Result<int64_t> index = contents->metadata.GetInt("split.no", 0);
      if (!index.ok() || *index != number - 1) {
        return Error(ErrorCode::kDataLoss, "{}: its split.no is not {}", path.string(), number - 1);
      }
      RETURN_IF_ERROR(Add(std::move(file), std::move(contents->tensors)));
    }
    return OkStatus();
  }

  // Adds one file and its tensors.
  Status Add(MappedFile file, TensorIndex tensors) {
    const int file_index = static_cast<int>(checkpoint_.files_.size());
    for (auto& [name, info] : tensors) {
      info.file_index = file_index;
      const auto [entry, inserted] = checkpoint_.tensors_.emplace(name, info);
      if (!inserted) {
        return Error(ErrorCode::kDataLoss, "{}: tensor '{}' at offset {} is also in {}",
                     file.path(), name, info.offset,
                     checkpoint_.file_paths_[static_cast<size_t>(entry->second.file_index)]);
      }
    }
    checkpoint_.file_paths_.push_back(file.path());
    checkpoint_.files_.push_back(std::move(file));
    return OkStatus();
  }

  Status LoadConfig() {
    const fs::path config_path = checkpoint_.directory_ / "config.json";
    const fs::path generation_path = checkpoint_.directory_ / "generation_config.json";
    ASSIGN_OR_RETURN(checkpoint_.config_json_,
                     detail::ReadOptionalFile(config_path, kMaxConfigBytes));
    ASSIGN_OR_RETURN(checkpoint_.metadata_, ParseOptional(checkpoint_.config_json_, config_path));
    ASSIGN_OR_RETURN(const std::string generation,
                     detail::ReadOptionalFile(generation_path, kMaxConfigBytes));
    ASSIGN_OR_RETURN(checkpoint_.generation_config_, ParseOptional(generation, generation_path));
    checkpoint_.format_ = CheckpointFormat::kSafetensors;
    const auto architectures = checkpoint_.metadata_.GetStringArray("architectures");
    if (architectures.ok() && !architectures->empty()) {
      checkpoint_.architecture_ = architectures->front();
    } else {
      const auto model_type = checkpoint_.metadata_.GetString("model_type", "");
      if (model_type.ok()) checkpoint_.architecture_ = *model_type;
    }
    return OkStatus();
  }

  const Contents contents_;
  Checkpoint checkpoint_;
};

Result<Checkpoint> Checkpoint::Open(const std::filesystem::path& path) {
  return CheckpointLoader(path, Contents::kEverything).Load();
}

Result<Checkpoint> Checkpoint::OpenConfig(const std::filesystem::path& path) {
  return CheckpointLoader(path, Contents::kConfigOnly).Load();
}

}  // namespace hayate::weights
