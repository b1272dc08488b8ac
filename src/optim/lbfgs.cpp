// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/lbfgs.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace lockstep::optim {

namespace {

constexpr double kEnoughDecrease = 1e-4;  // of the Wolfe conditions
constexpr double kEnoughFlattening = 0.9;
constexpr double kLeastCurvature = 1e-10;  // of a step that is learnt from

template <class T>
double dot(const std::vector<T>& a, const std::vector<T>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

template <class T>
double largest_magnitude(const std::vector<T>& values) {
  double largest = 0;
  for (const T value : values) largest = std::max(largest, std::abs(static_cast<double>(value)));
  return largest;
}

template <class T>
void add(std::span<T> to, double factor, const std::vector<T>& values) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += static_cast<T>(factor) * values[i];
}

/// A point on the line of search.
template <class T>
struct Trial {
  double at;  ///< in units of the direction
  double loss;
  std::vector<T> gradient;
  double slope;  ///< of the loss along the direction
};

/// Where the cubic through two trials is least, within [least, most].
template <class T>
double cubic_minimum(const Trial<T>& a, const Trial<T>& b, double least, double most) {
  const Trial<T>& low = a.at <= b.at ? a : b;
  const Trial<T>& high = a.at <= b.at ? b : a;
  const double d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.at - b.at);
  const double square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (least + most) / 2;
  const double d2 = std::sqrt(square);
  const double at = high.at - (high.at - low.at) * ((high.slope + d2 - d1) / (high.slope - low.slope + 2 * d2));
  return std::min(std::max(at, least), most);
}

template <class T>
class WolfeSearch {
 public:
  using Evaluate = std::function<Trial<T>(double at)>;
  WolfeSearch(const Evaluate& evaluate, Trial<T> start, double tolerance, std::int64_t max_evaluations)
      : evaluate_(&evaluate), start_(std::move(start)), tolerance_(tolerance), most_(max_evaluations) {}

  Trial<T> run(double first) {
    if (!find_bracket(first)) return low_;
    narrow_bracket();
    return low_;
  }

 private:
  bool is_too_high(const Trial<T>& trial) const {
    return trial.loss > start_.loss + kEnoughDecrease * trial.at * start_.slope;
  }
  bool is_flat(const Trial<T>& trial) const { return std::abs(trial.slope) <= -kEnoughFlattening * start_.slope; }
  void set_bracket(Trial<T> a, Trial<T> b) {
    if (b.loss < a.loss) std::swap(a, b);
    low_ = std::move(a);
    high_ = std::move(b);
  }

  /// Goes outward. False: low_ is the end.
  bool find_bracket(double first) {
    Trial<T> before = start_;
    Trial<T> trial = (*evaluate_)(first);
    for (; tries_ < most_; ++tries_) {
      const bool rises = tries_ > 1 && trial.loss >= before.loss;
      if (!is_too_high(trial) && !rises && is_flat(trial)) {
        low_ = std::move(trial);
        return false;
      }
      if (is_too_high(trial) || rises || trial.slope >= 0) {
        set_bracket(std::move(before), std::move(trial));
        return true;
      }
      const double next = cubic_minimum(before, trial, trial.at + 0.01 * (trial.at - before.at), trial.at * 10);
      before = std::exchange(trial, (*evaluate_)(next));
    }
    set_bracket(start_, std::move(trial));
    return false;
  }

  /// Where to look next inside the bracket: not twice running close to a border.
  double inside_bracket() {
    const auto [least, most] = std::minmax(low_.at, high_.at);
    const double margin = 0.1 * (most - least);
    const double at = cubic_minimum(low_, high_, least, most);
    const bool is_close = std::min(most - at, at - least) < margin;
    if (!is_close) {
      was_close_ = false;
    } else if (was_close_ || at >= most || at <= least) {
      was_close_ = false;
      return std::abs(at - most) < std::abs(at - least) ? most - margin : least + margin;
    } else {
      was_close_ = true;
    }
    return at;
  }

  void narrow_bracket() {
    while (tries_ < most_ && std::abs(high_.at - low_.at) >= tolerance_) {
      Trial<T> trial = (*evaluate_)(inside_bracket());
      ++tries_;
      if (is_too_high(trial) || trial.loss >= low_.loss) {
        set_bracket(std::move(low_), std::move(trial));
        continue;
      }
      const bool is_done = is_flat(trial);
      if (!is_done && trial.slope * (high_.at - low_.at) >= 0) high_ = std::move(low_);
      low_ = std::move(trial);
      if (is_done) return;
    }
  }

  const Evaluate* evaluate_;
  Trial<T> start_;
  double tolerance_;
  std::int64_t most_;
  std::int64_t tries_ = 0;
  Trial<T> low_;
  Trial<T> high_;
  bool was_close_ = false;
};

void require(bool is_right, const std::string& sentence) {
  if (!is_right) throw ConfigError("lbfgs: " + sentence);
}

}  // namespace

template <class T>
Lbfgs<T>::Lbfgs(const LbfgsOptions& options) : options_(options) {
  require(options.lr >= 0, "lr must be at least 0");
  require(options.max_iterations >= 1, "max_iterations must be at least 1");
  require(options.max_evaluations >= 0, "max_evaluations must be at least 0");
  require(options.history_size >= 1, "history_size must be at least 1");
  if (options_.max_evaluations == 0) options_.max_evaluations = options_.max_iterations * 5 / 4;
}

/// From the last step and what it did to the gradient.
template <class T>
void Lbfgs<T>::learn(const Vector& gradient) {
  Change change{.of_x = direction_, .of_gradient = gradient, .inverse_product = 0};
  for (T& value : change.of_x) value *= static_cast<T>(length_);
  add<T>(change.of_gradient, -1, last_gradient_);
  const double product = dot(change.of_gradient, change.of_x);
  if (!(product > kLeastCurvature)) return;
  if (history_.size() == options_.history_size) history_.erase(history_.begin());
  scale_ = product / dot(change.of_gradient, change.of_gradient);
  change.inverse_product = 1 / product;
  history_.push_back(std::move(change));
}

/// The gradient times the inverse curvature, downhill.
template <class T>
void Lbfgs<T>::choose_direction(const Vector& gradient) {
  direction_ = gradient;
  for (T& value : direction_) value = -value;
  std::vector<double> shares(history_.size());
  for (std::size_t i = history_.size(); i-- > 0;) {
    shares[i] = dot(history_[i].of_x, direction_) * history_[i].inverse_product;
    add<T>(direction_, -shares[i], history_[i].of_gradient);
  }
  for (T& value : direction_) value *= static_cast<T>(scale_);
  for (std::size_t i = 0; i < history_.size(); ++i) {
    const double back = dot(history_[i].of_gradient, direction_) * history_[i].inverse_product;
    add<T>(direction_, shares[i] - back, history_[i].of_x);
  }
}

template <class T>
double Lbfgs<T>::step(std::span<T> x, const Function& function) {
  Vector gradient(x.size());
  std::int64_t evaluations = 0;
  const auto evaluate = [&] {
    ++evaluations;
    return function(x, gradient);
  };
  const auto is_optimal = [&] { return largest_magnitude(gradient) <= options_.tolerance_gradient; };
  const double first_loss = evaluate();
  double loss = first_loss;
  if (is_optimal()) return first_loss;
  for (std::int64_t i = 1; i <= options_.max_iterations; ++i) {
    const bool is_first = ++iterations_ == 1;
    if (!is_first) learn(gradient);
    choose_direction(gradient);
    last_gradient_ = gradient;
    const double last_loss = loss;
    double sum = 0;
    for (const T value : gradient) sum += std::abs(static_cast<double>(value));
    length_ = is_first ? std::min(1.0, 1 / sum) * options_.lr : options_.lr;
    const double slope = dot(gradient, direction_);
    if (slope > -options_.tolerance_change) break;
    if (options_.strong_wolfe) {
      const Vector start(x.begin(), x.end());
      const std::function<Trial<T>(double)> at = [&](double length) {
        add<T>(x, length, direction_);
        const double trial_loss = evaluate();
        std::copy(start.begin(), start.end(), x.begin());
        return Trial<T>{.at = length, .loss = trial_loss, .gradient = gradient, .slope = dot(gradient, direction_)};
      };
      WolfeSearch<T> search(at, {.at = 0, .loss = loss, .gradient = gradient, .slope = slope},
                            options_.tolerance_change / largest_magnitude(direction_),
                            options_.max_evaluations - evaluations);
      Trial<T> found = search.run(length_);
      length_ = found.at;
      loss = found.loss;
      gradient = std::move(found.gradient);
      add<T>(x, length_, direction_);
    } else {
      add<T>(x, length_, direction_);
      if (i == options_.max_iterations) break;  // the next step evaluates here
      loss = evaluate();
    }
    const bool is_still = largest_magnitude(direction_) * std::abs(length_) <= options_.tolerance_change;
    const bool is_level = std::abs(loss - last_loss) < options_.tolerance_change;
    if (evaluations >= options_.max_evaluations || is_optimal() || is_still || is_level) break;
  }
  return first_loss;
}

template class Lbfgs<float>;
template class Lbfgs<double>;

}  // namespace lockstep::optim
