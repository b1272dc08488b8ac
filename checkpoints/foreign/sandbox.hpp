// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

/// A child process for a library that may crash on what it reads.
namespace lockstep::checkpoints {

/// Writes to the parent; in the child.
class ChildOutput {
 public:
  explicit ChildOutput(int pipe) : pipe_(pipe) {}
  void write(std::span<const std::byte> bytes);
  void write_number(std::uint64_t number) { write(std::as_bytes(std::span(&number, 1))); }
  void write_text(const std::string& text);

 private:
  int pipe_;
};

/// Reads what the child writes; in the parent. The child is not believed: a length is checked before memory is taken.
class ChildInput {
 public:
  explicit ChildInput(int pipe) : pipe_(pipe) {}
  /// @throws CheckpointError  without a path: the child ended before that
  void read(std::span<std::byte> out);
  std::uint64_t read_number();
  std::string read_text();

 private:
  int pipe_;
};

/// Runs `work` in a child that can open no file and write none, with bounds on its time and memory, and `receive` here
/// meanwhile.
///
/// The child is a fork of this process: `work` must not wait for another thread, nor use MPI or a GPU. Its exceptions
/// end the child without a word: it must report them through its output.
/// @param memory_bytes  what the child may take beyond what this process has
/// @throws CheckpointError  without a path: the child crashed, or was stopped for taking too much; else what `receive`
///                          throws
void run_in_child(std::uint64_t memory_bytes, const std::function<void(ChildOutput&)>& work,
                  const std::function<void(ChildInput&)>& receive);

}  // namespace lockstep::checkpoints
