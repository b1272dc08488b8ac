// SPDX-License-Identifier: BSD-3-Clause
#include "engine/measures/progress_lines.hpp"

#include <lockstep/log/log.hpp>

#include <fmt/format.h>

#include <utility>

#include "core/duration.hpp"

namespace lockstep::engine {

namespace {

constexpr std::chrono::seconds kBetweenLines{5};

}  // namespace

ProgressLines::ProgressLines(std::string what, std::int64_t total)
    : what_(std::move(what)), total_(total), began_(std::chrono::steady_clock::now()), shown_(began_) {}

void ProgressLines::show(std::int64_t done) {
  const auto now = std::chrono::steady_clock::now();
  if (now - shown_ < kBetweenLines || done >= total_) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - began_).count();
  const double left = seconds / static_cast<double>(done) * static_cast<double>(total_ - done);
  log::info(fmt::format("{}: {} of {} batches, eta {}", what_, done, total_, clock_text(left)));
}

}  // namespace lockstep::engine
