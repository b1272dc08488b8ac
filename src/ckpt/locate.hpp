// SPDX-License-Identifier: BSD-3-Clause
// What a path on the command line stands for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::ckpt {

/// A file to read, and an array or group inside it ("" when the path names the file).
struct Located {
  std::string file;
  std::string inside;
};

/// A file; a checkpoint's folder (its state.h5); a folder of checkpoints or a run's folder (the newest); or any of
/// these followed by "/group/array".
/// @throws Failure  nothing there (with the nearest folder that is, and similar names), or no checkpoint in it
Located locate(const std::string& path);

/// The folder of checkpoints that `path` is, holds as `ckpt`, or lies in.
/// @throws Failure  there is none
std::string checkpoint_folder(const std::string& path);

/// The committed checkpoints' state.h5 of a folder, by step.
struct Saved {
  std::int64_t step = 0;
  std::string folder;  ///< "step-000000001250"
  std::string file;
};
std::vector<Saved> saved_in(const std::string& directory);

}  // namespace lockstep::ckpt
