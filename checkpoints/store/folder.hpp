// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/format/state_file.hpp"

/// The names and files of one checkpoint: `step-000000012000/state.h5`, or in its place shards and a manifest that
/// binds them, or the single file `step-000000012000.h5`.
namespace lockstep::checkpoints {

inline constexpr const char* kStateFile = "state.h5";
inline constexpr const char* kManifest = "MANIFEST.json";

/// The step that a folder's or a single file's name gives.
std::optional<std::int64_t> step_of(const std::string& name);

/// "state.h5", or "shard-00001-of-00004.h5" of several.
std::string part_name(std::uint32_t part, std::uint32_t parts);

/// The state files of a checkpoint folder, or the file itself. Shards are those that the manifest lists; each must be
/// there, finished and the one that was written with the others.
/// @throws CheckpointError  `path` is no checkpoint, and what it is; a shard is missing or of another checkpoint
std::vector<std::string> state_files(const std::string& path);

/// The content of a manifest: the seals of the shards, in order.
std::string manifest_text(std::int64_t step, const std::vector<Seal>& seals);

}  // namespace lockstep::checkpoints
