// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/source.hpp"

/// What the words of a command line stand for: files, checkpoints, and arrays in them.
namespace lockstep::ckpt {

/// A file or a checkpoint's folder, and an array or group inside it ("" when the path names the whole).
struct Located {
  std::string file;
  std::string inside;
};

/// A file; a checkpoint's folder; a folder of checkpoints or a run's folder (the newest); or any of
/// these followed by "/group/array".
/// @throws Failure  nothing there (with the nearest folder that is, and similar names), or no checkpoint in it
Located locate(const std::string& path);

/// `path` where it names one checkpoint, its folder or a file, and "" where it is a folder of something else.
/// @throws Failure  nothing there
std::string one_checkpoint(const std::string& path);

/// The folder of checkpoints that `path` is, or holds as `ckpt`.
/// @throws Failure  there is none
std::string checkpoint_folder(const std::string& path);

/// Everything in a folder, in no particular order; nothing if it cannot be listed.
std::vector<std::string> names_in(const std::string& folder);

/// A committed checkpoint.
struct Saved {
  std::int64_t step = 0;
  std::string name;  ///< "step-000000001250", or with ".h5" behind
  std::string path;
};
/// Those of a folder, by step.
std::vector<Saved> saved_in(const std::string& directory);

/// The size of a file, or of all files in a folder.
std::uint64_t bytes_of(const std::string& path);

/// Opens what the path names.
/// @throws Failure  also when it names an array inside a file
InspectedFile open_source(const std::string& path);

/// A file, and an array in it that the words name as FILE NAME or FILE/NAME; with a slice where one is written.
struct ArrayArgument {
  InspectedFile source;
  const FileArray* info;
  std::string slice;
};
ArrayArgument open_array(const std::vector<std::string>& words);

/// The arrays that --filter lets pass, in the order of --sort. Not cut to --limit.
std::vector<const FileArray*> select(const InspectedFile& source, const Request& request);

/// --limit, or `otherwise`.
std::size_t limit_of(const Request& request, std::size_t otherwise);

}  // namespace lockstep::ckpt
