// SPDX-License-Identifier: BSD-3-Clause
#include "report/console/progress_bar.hpp"

#include <lockstep/log/log.hpp>

#include <fmt/format.h>

#include <algorithm>

#include "core/text/duration.hpp"
#include "report/console/console_line.hpp"

namespace lockstep::report {

namespace {

constexpr std::size_t kColumns = 79;  // mpirun's pseudo-terminal has another width than the real one
constexpr std::size_t kLongestBar = 40;
constexpr std::size_t kShortestBar = 5;

}  // namespace

std::string progress_text(const BarProgress& progress, std::size_t width) {
  const std::string eta = progress.eta_seconds ? " eta " + clock_text(*progress.eta_seconds) : "";
  if (progress.total <= 0) return (std::to_string(progress.done) + " steps" + eta).substr(0, width);
  const std::int64_t done = std::clamp<std::int64_t>(progress.done, 0, progress.total);
  const double share = static_cast<double>(done) / static_cast<double>(progress.total);
  const std::string left = fmt::format("{:3d}%", static_cast<int>(100 * share));
  const std::string right = fmt::format(" {}/{}{}", done, progress.total, eta);
  const std::size_t used = left.size() + right.size() + 3;  // a blank and two brackets
  if (used + kShortestBar > width) return (left + right).substr(0, width);
  const std::size_t length = std::min(width - used, kLongestBar);
  std::string bar(static_cast<std::size_t>(share * static_cast<double>(length)), '=');
  if (bar.size() < length) bar += '>';
  bar.resize(length, ' ');
  return left + " [" + bar + "]" + right;
}

ProgressBar::ProgressBar() : is_seen_(log::stdout_is_terminal()) {}

ProgressBar::~ProgressBar() { log::status(""); }

void ProgressBar::update(const BarProgress& progress, SteadyClock::time_point now) {
  if (!is_seen_ || (last_ && now - *last_ < std::chrono::milliseconds(100))) return;
  last_ = now;
  log::status(progress_text(progress, kColumns));
}

}  // namespace lockstep::report
