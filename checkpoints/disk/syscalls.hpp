// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <sys/types.h>

namespace lockstep::checkpoints {

/// The system calls that make a checkpoint durable, by pointer: a test puts its own in to record their order and to let
/// each fail in turn. A program leaves them alone.
struct Syscalls {
  int (*mkdir)(const char* path, mode_t mode);
  int (*open)(const char* path, int flags, mode_t mode);
  int (*fallocate)(int file, int mode, off_t offset, off_t length);
  ssize_t (*pwrite)(int file, const void* bytes, std::size_t count, off_t offset);
  int (*fsync)(int file);
  int (*close)(int file);
  int (*rename)(const char* from, const char* target);
};

Syscalls& syscalls();

}  // namespace lockstep::checkpoints
