// SPDX-License-Identifier: BSD-3-Clause
#include "engine/saving/progress_lines.hpp"

#include <lockstep/log/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/text/duration.hpp"

namespace lockstep::engine {

namespace {

double gib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace

std::uint64_t bytes_in(const std::filesystem::path& checkpoint) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(checkpoint, ignored)) {
    const auto size = std::filesystem::file_size(checkpoint, ignored);
    return ignored ? 0 : size;
  }
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint, ignored)) bytes += bytes_in(entry.path());
  return bytes;
}

ProgressLines::ProgressLines(std::string what, std::int64_t total)
    : what_(std::move(what)), total_(total), began_(SteadyClock::now()), shown_(began_) {}

void ProgressLines::show(std::int64_t done) {
  const auto now = SteadyClock::now();
  if (now - shown_ < kBetweenProgressLines || done >= total_) return;
  shown_ = now;
  const double left = seconds_since(began_) / static_cast<double>(done) * static_cast<double>(total_ - done);
  log::info(fmt::format("{}: {} of {} batches, eta {}", what_, done, total_, clock_text(left)));
}

TransferLines::TransferLines(std::string what, std::uint64_t total, std::function<std::uint64_t()> bytes,
                             std::chrono::milliseconds between)
    : what_(std::move(what)), total_(total) {
  const std::uint64_t first = bytes();
  const SteadyClock::time_point began = SteadyClock::now();
  thread_ = std::thread([this, bytes = std::move(bytes), first, began, between] {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, between, [this] { return is_over_; })) show(bytes() - first, seconds_since(began));
  });
}

TransferLines::~TransferLines() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void TransferLines::show(std::uint64_t done, double seconds) const {
  const std::uint64_t left = total_ - std::min(done, total_);
  const std::string eta =
      done == 0 ? "" : ", eta " + clock_text(seconds * static_cast<double>(left) / static_cast<double>(done));
  log::info(fmt::format("{}: {:.2f} of {:.2f} GiB{}", what_, gib(done), gib(std::max(done, total_)), eta));
}

}  // namespace lockstep::engine
