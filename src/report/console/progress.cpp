// SPDX-License-Identifier: BSD-3-Clause
#include "report/console/progress.hpp"

#include <lockstep/log/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace lockstep::report {

namespace {

constexpr std::size_t kMaxGroups = 3;

/// Always as many significant digits as requested, so that the eye sees small changes: 0.00100, 0.3210.
std::string with_digits(double value, int digits) {
  // The number as "%#.*g" of C, whose decimal point depends on the locale; fmt 9 would add a digit: 1234.4 as "1234.0".
  const std::string scientific = fmt::format("{:.{}e}", value, digits - 1);
  if (!std::isfinite(value)) return scientific;
  const int exponent = std::atoi(scientific.c_str() + scientific.find('e') + 1);
  if (exponent < -4 || exponent >= digits) return scientific;
  return fmt::format("{:.{}f}", value, digits - 1 - exponent);
}

/// "0.00100", "decay 0.00100 head 0.0100", or of many groups "1.00e-05 to 0.00100".
std::string rates(const ConsoleValues& values) {
  if (values.group_lrs.empty()) return with_digits(values.lr, 3);
  if (values.group_lrs.size() > kMaxGroups) {
    const auto [low, high] = std::minmax_element(values.group_lrs.begin(), values.group_lrs.end(),
                                                 [](const auto& a, const auto& b) { return a.second < b.second; });
    return with_digits(low->second, 3) + " to " + with_digits(high->second, 3);
  }
  std::string text;
  for (const auto& [group, lr] : values.group_lrs) {
    text += (text.empty() ? "" : " ") + group + " " + with_digits(lr, 3);
  }
  return text;
}

/// "512M" or "1.5G", in powers of 1024.
std::string memory(double megabytes) {
  return megabytes < 1024 ? fmt::format("{:.0f}M", megabytes) : fmt::format("{:.1f}G", megabytes / 1024);
}

constexpr std::size_t kColumns = 79;  // mpirun's pseudo-terminal has another width than the real one
constexpr std::size_t kLongestBar = 40;
constexpr std::size_t kShortestBar = 5;

}  // namespace

Eta::Eta(std::size_t window) : window_(std::max<std::size_t>(window, 1)) {}

void Eta::add(double step_seconds) {
  if (recent_.size() < window_) {
    recent_.push_back(step_seconds);
  } else {
    recent_[next_] = step_seconds;
    next_ = (next_ + 1) % window_;
  }
}

std::optional<double> Eta::median_step_seconds() const {
  if (recent_.empty()) return std::nullopt;
  std::vector<double> sorted = recent_;
  const std::size_t middle = sorted.size() / 2;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(middle), sorted.end());
  const double upper = sorted[middle];
  if (sorted.size() % 2 == 1) return upper;
  return 0.5 * (*std::max_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(middle)) + upper);
}

std::optional<double> Eta::seconds_left(std::int64_t steps_left) const {
  const std::optional<double> median = median_step_seconds();
  if (!median) return std::nullopt;
  return *median * static_cast<double>(std::max<std::int64_t>(steps_left, 0));
}

std::string console_line(const ConsoleValues& values) {
  std::string line = fmt::format("step {}", values.step);
  if (values.total_steps > 0) line += fmt::format("/{}", values.total_steps);
  line += fmt::format(" epoch {} loss {} lr {}", values.epoch, with_digits(values.loss, 4), rates(values));
  const bool is_small = values.throughput < 100;
  line += " " + values.throughput_unit + " ";
  line += is_small ? fmt::format("{:.3g}", values.throughput) : fmt::format("{:.0f}", values.throughput);
  line += fmt::format(" data-wait {:.1f}%", 100 * values.data_wait_share);
  if (values.grad_norm) line += fmt::format(" grad-norm {:.3g}", *values.grad_norm);
  if (values.memory_mb) line += " mem " + memory(*values.memory_mb);
  if (values.mfu) line += fmt::format(" mfu {:.0f}%", 100 * *values.mfu);
  if (values.eta_seconds) line += " eta " + clock_text(*values.eta_seconds);
  return line;
}

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
