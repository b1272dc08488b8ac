// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "checkpoints/format/transfer.hpp"

namespace lockstep::checkpoints {

/// The checkpoints of one run: folder `<run.dir>/ckpt` with `step-000000012000/state.h5` and so on. FORMAT.md is the
/// law.
///
/// Not collective, and meant for one process at a time: engine calls it on rank 0 and shares the outcome.

/// "step-000000012000".
std::string folder_name(std::int64_t step);

/// Steps of the committed checkpoints in `directory` (which may be missing), ascending. Only the name counts.
/// @throws CheckpointError  `directory` cannot be listed
std::vector<std::int64_t> list(const std::string& directory);

/// The newest committed checkpoint's folder; none when there is none.
std::optional<std::string> latest(const std::string& directory);

/// The latest checkpoint of a run, of which `path` is the folder or the folder of its checkpoints; otherwise nothing.
std::optional<std::string> latest_of_run(const std::string& path);

/// Writes a checkpoint: temporary name, fsync, rename, fsync of the directory. When it returns the checkpoint survives
/// a power cut; when it throws, every checkpoint in `directory` is as it was (and at most a temporary is left that
/// readers ignore). A checkpoint of that step that is there already stays if it is readable and equal, is renamed as
/// ".bad-step-..." if it is not readable, and is an error if it is readable and different.
///
/// A program should ignore SIGXFSZ, so that a limit on file sizes is an error like any other.
/// @return the committed folder
/// @throws CheckpointError  with the path, the call and the system's words
std::string write(const std::string& directory, std::int64_t step, const Archive& archive);

struct CommitOptions {
  std::uint32_t parts = 1;
  bool is_single_file = false;  ///< step-000000012000.h5 in place of a folder; of one part only
};

// The steps of write(), for writers that do not know one another: one of them stages, each writes its part, and
// when all have, the first one commits.

/// A new temporary folder for a checkpoint of `step`.
std::string stage(const std::string& directory, std::int64_t step);

/// Writes part of `archive`, which every writer has whole, and makes it durable. Waits for bytes that have not arrived.
/// @return the file
std::string write_part(const std::string& staged, std::int64_t step, const Archive& archive, FilePart part,
                       int threads = 1);

/// Gives a staged checkpoint whose parts are all written its name, as write() does.
/// @return the committed folder or file
std::string commit(const std::string& directory, const std::string& staged, std::int64_t step,
                   const CommitOptions& options);

/// Removes a staged checkpoint.
void abandon(const std::string& staged) noexcept;

/// The place where the checkpoint of `step` lies: its folder, or its single file when that is there.
std::string checkpoint_of(const std::string& directory, std::int64_t step);

/// Reads a checkpoint folder, or a state file itself, and checks every byte.
/// @param targets  where arrays are to go; others get memory of their own. After an error they hold parts of a
/// checkpoint
/// @throws CheckpointError  missing, torn, damaged (naming the bytes and their array), of another format version, or
///                          not a checkpoint (saying what it is)
Archive read(const std::string& path, const RestoreTargets& targets = {});

/// The checks of read(), in little memory.
void verify(const std::string& path, int threads = io_threads());

/// Copies a committed checkpoint to another directory of checkpoints and commits it there, as write() does.
/// @param stop  a request on it ends the copy with an error
/// @return  the committed folder or file
std::string copy(const std::string& checkpoint, const std::string& directory, const std::stop_token& stop = {});

/// Removes a committed checkpoint.
void remove(const std::string& checkpoint);

/// Renames a checkpoint that cannot be read to `.bad-step-...`, which nobody reads or deletes.
/// @return  its new path
std::string quarantine(const std::string& checkpoint);

/// Renames a checkpoint that is not wanted here to `.old-step-...`, which nobody reads or deletes.
/// @return  its new path
std::string set_aside(const std::string& checkpoint);

/// Sets the committed checkpoints beyond `step` aside: a run that continues from an earlier step will write them again.
/// @return  how many there were
std::size_t set_aside_after(const std::string& directory, std::int64_t step);

/// Proves that checkpoints can be written to `directory`, creating it: writes, fsyncs, renames and removes a probe.
/// @throws CheckpointError  with the call that failed
void probe(const std::string& directory);

/// How often in a row a run has started from the same step: a file STARTS next to its checkpoints, lines `step` and
/// `count`. A run that dies before it saves is started from there again, and would be forever.
struct RequeueCount {
  std::int64_t step = 0;
  std::int64_t count = 0;  ///< 0 = nothing is known
};

/// A file that cannot be understood counts as none.
RequeueCount read_requeue_count(const std::string& directory);

/// Notes one more start from `step`, or the first one where the last was from another step. Durable when it returns.
/// @param is_first  forgets those before, because the user has started the run again
/// @return  how many there are in a row now, this one included
/// @throws CheckpointError  the file cannot be written
std::int64_t note_start(const std::string& directory, std::int64_t step, bool is_first);

}  // namespace lockstep::checkpoints
