// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/store/folder.hpp"

#include <lockstep/core/error.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/store/store.hpp"

namespace lockstep::checkpoints {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kFileSuffix = ".h5";
constexpr std::size_t kStepDigits = 12;
constexpr std::uint64_t kMaxManifestBytes = 16 << 20;

struct Shard {
  std::string name;
  std::string digest;
};

struct Manifest {
  std::int64_t step = 0;
  std::vector<Shard> shards;
};

Manifest read_manifest(const std::string& path) {
  const ExistingFile file(path);
  if (file.size() > kMaxManifestBytes) throw CheckpointError(path, "it is larger than a manifest can be");
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  // The parser would take a NUL for the end, whatever follows.
  if (text.find('\0') != std::string::npos) throw CheckpointError(path, "it is damaged: it has a NUL");
  Manifest manifest;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (json.at("format_version").get<int>() != kFormatVersion) throw CheckpointError(path, "it has another version");
    manifest.step = json.at("step").get<std::int64_t>();
    for (const auto& shard : json.at("shards")) {
      manifest.shards.push_back({shard.at("name").get<std::string>(), shard.at("digest").get<std::string>()});
    }
  } catch (const nlohmann::json::exception&) {
    throw CheckpointError(path, "it is damaged: it is not a manifest of shards");
  }
  return manifest;
}

/// The shards of a folder, each checked to be what the manifest says.
std::vector<std::string> shards_of(const std::string& folder) {
  const Manifest manifest = read_manifest(folder + "/" + kManifest);
  std::vector<std::string> files;
  std::string missing;
  for (std::size_t i = 0; i < manifest.shards.size(); ++i) {
    const Shard& shard = manifest.shards[i];
    if (shard.name != part_name(static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(manifest.shards.size()))) {
      throw CheckpointError(folder + "/" + kManifest,
                            "it is damaged: shard " + std::to_string(i) + " has a wrong name");
    }
    files.push_back(folder + "/" + shard.name);
    if (!exists(files.back())) missing += (missing.empty() ? "" : ", ") + shard.name;
  }
  if (files.empty()) throw CheckpointError(folder + "/" + kManifest, "it is damaged: it lists no shards");
  if (!missing.empty()) throw CheckpointError(folder, "these shards are missing: " + missing);
  for (std::size_t i = 0; i < files.size(); ++i) {
    const Seal seal = read_seal(files[i]);
    if (seal.step != static_cast<std::uint64_t>(manifest.step) || hex_of(seal.digest) != manifest.shards[i].digest) {
      throw CheckpointError(files[i], "it belongs to another checkpoint: its digest is " + hex_of(seal.digest) +
                                          ", but the manifest states " + manifest.shards[i].digest);
    }
  }
  return files;
}

}  // namespace

std::string folder_name(std::int64_t step) {
  std::string digits = std::to_string(step);
  if (step < 0 || digits.size() > kStepDigits) throw std::logic_error("a checkpoint cannot have step " + digits);
  return std::string(kPrefix) + std::string(kStepDigits - digits.size(), '0') + digits;
}

std::optional<std::int64_t> step_of(const std::string& name) {
  std::string_view rest = name;
  if (rest.ends_with(kFileSuffix)) rest.remove_suffix(kFileSuffix.size());
  if (rest.size() != kPrefix.size() + kStepDigits || !rest.starts_with(kPrefix)) return std::nullopt;
  const std::string digits(rest.substr(kPrefix.size()));
  if (!std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; })) return std::nullopt;
  return std::stoll(digits);
}

std::string part_name(std::uint32_t part, std::uint32_t parts) {
  if (parts == 1) return kStateFile;
  char name[48];
  std::snprintf(name, sizeof name, "shard-%05u-of-%05u.h5", part, parts);
  return name;
}

std::vector<std::string> state_files(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return {path};
  if (exists(path + "/" + kStateFile)) return {path + "/" + kStateFile};
  if (exists(path + "/" + kManifest)) return shards_of(path);
  const auto newest = latest(path);
  throw CheckpointError(path, newest ? "it is a folder of checkpoints; give one of them, such as " + *newest
                                     : "it does not contain state.h5, so it is not a checkpoint")
      .as(CheckpointFault::missing);
}

std::string manifest_text(std::int64_t step, const std::vector<Seal>& seals) {
  nlohmann::ordered_json json;
  json["format_version"] = kFormatVersion;
  json["step"] = step;
  json["shards"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < seals.size(); ++i) {
    json["shards"].push_back(
        {{"name", part_name(static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(seals.size()))},
         {"digest", hex_of(seals[i].digest)}});
  }
  return json.dump(2) + "\n";
}

}  // namespace lockstep::checkpoints
