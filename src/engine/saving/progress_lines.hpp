// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep::engine {

/// The time between two lines of the same work.
inline constexpr std::chrono::milliseconds kBetweenProgressLines{5000};

/// Bytes of a checkpoint, which is a file or a folder of files; 0 if it cannot be read.
std::uint64_t bytes_in(const std::filesystem::path& checkpoint);

/// Logs the progress of a long loop, at most every five seconds. A loop that takes less time logs nothing.
class ProgressLines {
 public:
  /// @param what   name of the work, for example "evaluation"
  /// @param total  batches of this rank
  ProgressLines(std::string what, std::int64_t total);

  /// @param done  batches so far
  void show(std::int64_t done);

 private:
  std::string what_;
  std::int64_t total_;
  std::chrono::steady_clock::time_point began_;
  std::chrono::steady_clock::time_point shown_;
};

/// Logs the progress of reading or writing a checkpoint during its lifetime, from a thread of its own, every five
/// seconds: "reading FILE: 1.2 of 4.0 GiB, eta 0:00:12". Work that takes less time logs nothing.
class TransferLines {
 public:
  /// @param what   the work, for example "reading FILE"
  /// @param total  bytes to transfer, about
  /// @param bytes  counter of transferred bytes, such as checkpoints::bytes_read; called from the thread
  TransferLines(std::string what, std::uint64_t total, std::function<std::uint64_t()> bytes,
                std::chrono::milliseconds between = kBetweenProgressLines);
  ~TransferLines();
  TransferLines(const TransferLines&) = delete;
  TransferLines& operator=(const TransferLines&) = delete;

 private:
  void show(std::uint64_t done, double seconds) const;

  std::string what_;
  std::uint64_t total_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace lockstep::engine
