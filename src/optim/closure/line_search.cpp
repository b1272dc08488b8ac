// SPDX-License-Identifier: BSD-3-Clause
#include "optim/closure/line_search.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep::optim {

namespace {

constexpr double kEnoughDecrease = 1e-4;  // first constant of the Wolfe conditions
constexpr double kEnoughFlattening = 0.9;

/// The minimum of the cubic through two trials, within [min, max].
double cubic_minimum(const Trial& a, const Trial& b, double min, double max) {
  const Trial& low = a.length <= b.length ? a : b;
  const Trial& high = a.length <= b.length ? b : a;
  const double d1 = a.slope + b.slope - 3 * (a.point.loss - b.point.loss) / (a.length - b.length);
  const double square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (min + max) / 2;
  const double d2 = std::sqrt(square);
  const double length =
      high.length - (high.length - low.length) * ((high.slope + d2 - d1) / (high.slope - low.slope + 2 * d2));
  return std::isfinite(length) ? std::min(std::max(length, min), max) : (min + max) / 2;
}

class WolfeSearch {
 public:
  using Evaluate = std::function<Trial(double length)>;
  WolfeSearch(const Evaluate& evaluate, Trial start, const LineSearchOptions& options)
      : evaluate_(&evaluate), start_(std::move(start)), tolerance_(options.tolerance), max_tries_(options.max_tries) {}

  Trial run(double first) {
    if (!find_bracket(first)) return low_;
    narrow_bracket();
    return low_;
  }

 private:
  bool is_too_high(const Trial& trial) const {
    return !(trial.point.loss <= start_.point.loss + kEnoughDecrease * trial.length * start_.slope);
  }
  bool is_flat(const Trial& trial) const { return std::abs(trial.slope) <= -kEnoughFlattening * start_.slope; }
  void set_bracket(Trial a, Trial b) {
    if (b.point.loss < a.point.loss) std::swap(a, b);
    low_ = std::move(a);
    high_ = std::move(b);
  }

  /// Goes outward. False = low_ is the end.
  bool find_bracket(double first) {
    Trial before = start_;
    Trial trial = (*evaluate_)(first);
    for (; tries_ < max_tries_; ++tries_) {
      const bool rises = tries_ > 1 && trial.point.loss >= before.point.loss;
      if (!is_too_high(trial) && !rises && is_flat(trial)) {
        low_ = std::move(trial);
        return false;
      }
      if (is_too_high(trial) || rises || trial.slope >= 0) {
        set_bracket(std::move(before), std::move(trial));
        return true;
      }
      const double next =
          cubic_minimum(before, trial, trial.length + 0.01 * (trial.length - before.length), trial.length * 10);
      before = std::exchange(trial, (*evaluate_)(next));
    }
    set_bracket(start_, std::move(trial));
    return false;
  }

  /// The place to look at next inside the bracket: not twice running close to a border.
  double inside_bracket() {
    const auto [min, max] = std::minmax(low_.length, high_.length);
    const double margin = 0.1 * (max - min);
    const double length = cubic_minimum(low_, high_, min, max);
    const bool is_close = std::min(max - length, length - min) < margin;
    if (!is_close) {
      was_close_ = false;
    } else if (was_close_ || length >= max || length <= min) {
      was_close_ = false;
      return std::abs(length - max) < std::abs(length - min) ? max - margin : min + margin;
    } else {
      was_close_ = true;
    }
    return length;
  }

  void narrow_bracket() {
    while (tries_ < max_tries_ && std::abs(high_.length - low_.length) >= tolerance_) {
      Trial trial = (*evaluate_)(inside_bracket());
      ++tries_;
      if (is_too_high(trial) || trial.point.loss >= low_.point.loss) {
        set_bracket(std::move(low_), std::move(trial));
        continue;
      }
      const bool is_done = is_flat(trial);
      if (!is_done && trial.slope * (high_.length - low_.length) >= 0) high_ = std::move(low_);
      low_ = std::move(trial);
      if (is_done) return;
    }
  }

  const Evaluate* evaluate_;
  Trial start_;
  double tolerance_;
  std::int64_t max_tries_;
  std::int64_t tries_ = 0;
  Trial low_;
  Trial high_;
  bool was_close_ = false;
};

}  // namespace

Trial search_line(const std::function<Trial(double length)>& evaluate, Trial start, double first,
                  const LineSearchOptions& options) {
  return WolfeSearch(evaluate, std::move(start), options).run(first);
}

}  // namespace lockstep::optim
