// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

/// The names beginning with a dot that a writer leaves in a folder of checkpoints when it is killed.
namespace lockstep::checkpoints {

/// Whether a process of this host exists and has not ended. A zombie has ended: its exit code has not been read yet.
bool is_running(pid_t process);

/// Seconds since a file or folder was written; 0 if this is unknown.
double seconds_since_change(const std::string& path);

/// ".tmp-<name>.<process>.<host>": under construction by this process.
std::string temporary_name(const std::string& name);

/// Deletes a checkpoint: it is renamed to ".trash-..." first, so that nobody takes a half-deleted one for whole.
void discard(const std::string& directory, const std::string& name);

/// Everything in a folder, in no particular order; nothing when the folder is missing.
std::vector<std::string> names_in(const std::string& directory);

/// Deletes what retain() was kept from deleting, and temporaries whose process is gone (or, on another host, that are
/// older than a day).
void remove_stale_files(const std::string& directory);

}  // namespace lockstep::checkpoints
