// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "optim/closure/closure_step.hpp"
#include "optim/closure/lbfgs_history.hpp"
#include "optim/closure/line_search.hpp"
#include "optim/closure/vectors.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

constexpr std::int64_t kMaxTries = 25;  // maximum evaluations in one line search

class Lbfgs {
 public:
  explicit Lbfgs(ClosureStep& step)
      : step_(&step),
        options_(&step.options()),
        history_(step),
        direction_(step.state(kDirection)),
        last_gradient_(step.state(kLastGradient)) {}

  void run() {
    point_ = step_->evaluate();
    if (!std::isfinite(step_->so_far().grad_norm)) return;
    const auto max_iterations = static_cast<std::int64_t>(options_->at("max_iter"));
    for (std::int64_t i = 1; i <= max_iterations && std::isfinite(point_.loss) && choose_direction(); ++i) {
      const ClosureStep::Measure measures[] = {{&point_.gradient, &direction_}, {&direction_}};
      const std::vector<double> measured = step_->measure(measures);
      const double slope = measured[0];
      largest_ = measured[1];
      if (!(slope <= -option("tolerance_change"))) return;
      const double last_loss = point_.loss;
      if (option("strong_wolfe") != 0) {
        search(slope);
      } else {
        step_->move_to(step_->position(), length(), direction_);
        if (i == max_iterations) return;  // the next step evaluates here
        point_ = step_->evaluate();
      }
      const bool is_still = largest_ * std::abs(length()) <= option("tolerance_change");
      const bool is_level = std::abs(point_.loss - last_loss) < option("tolerance_change");
      if (is_still || is_level || evaluations_left() <= 0) return;
    }
  }

 private:
  double option(const char* name) const { return options_->at(name); }
  /// The length of the last step, in units of direction_.
  double& length() { return step_->numbers().at("t"); }
  std::int64_t evaluations_left() const {
    const auto given = static_cast<std::int64_t>(option("max_eval"));
    const auto max_evaluations = given == 0 ? static_cast<std::int64_t>(option("max_iter")) * 5 / 4 : given;
    return max_evaluations - step_->so_far().evaluations;
  }

  /// False = the gradient is as small as it is to be.
  bool choose_direction() {
    const bool is_first = step_->numbers().at("n_iter") == 0;
    std::optional<Curvature> found;
    if (!is_first) {
      found = {.step = product(direction_, length()), .change = sum(point_.gradient, -1, last_gradient_)};
    }
    const Vector of_signs = is_first ? signs(point_.gradient) : Vector();
    std::vector<ClosureStep::Measure> measures = {{&point_.gradient}};
    if (is_first) measures.push_back({&point_.gradient, &of_signs});
    const std::size_t own = measures.size();
    history_.ask(measures, point_.gradient, found);
    const std::vector<double> measured = step_->measure(measures);
    if (measured[0] <= option("tolerance_grad")) return false;
    ++step_->numbers().at("n_iter");
    assign(direction_, history_.downhill(std::span(measured).subspan(own), point_.gradient, found));
    assign(last_gradient_, point_.gradient);
    length() = option("lr");
    if (is_first) length() *= std::min(1.0, 1 / measured[1]);
    return true;
  }

  /// Searches to where the loss along the direction is low and flat enough.
  void search(double slope) {
    const Vector start = step_->position();
    const auto trial_at = [&](double length) {
      step_->move_to(start, length, direction_);
      ClosureStep::LossPoint point = step_->evaluate();
      const double trial_slope = step_->dot(point.gradient, direction_);
      return Trial{.length = length, .point = std::move(point), .slope = trial_slope};
    };
    Trial found = search_line(
        trial_at, {.length = 0, .point = point_, .slope = slope}, length(),
        {.tolerance = option("tolerance_change") / largest_, .max_tries = std::min(kMaxTries, evaluations_left())});
    step_->move_to(start, found.length, direction_);
    length() = found.length;
    point_ = std::move(found.point);
  }

  ClosureStep* step_;
  const Options* options_;
  LbfgsHistory history_;
  Vector direction_;
  Vector last_gradient_;
  ClosureStep::LossPoint point_;
  double largest_ = 0;  // magnitude in the direction
};

void step_by_lbfgs(ClosureStep& step) {
  Lbfgs(step).run();
  step.numbers().at("func_evals") += static_cast<double>(step.so_far().evaluations);
}

Options read(const Section& optim) {
  const std::pair<const char*, bool> others[] = {{"weight_decay", optim.real("weight_decay") != 0},
                                                 {"maximize", optim.boolean("maximize")},
                                                 {"no_decay", optim.text("no_decay") != "none"},
                                                 {"paramwise", !optim.texts("paramwise").empty()}};
  for (const auto& [key, is_set] : others) {
    if (!is_set) continue;
    throw ConfigError(
        optim.cite(key) +
        " cannot be combined with optim.name=lbfgs, which evaluates the loss several times per step, for " +
        "all parameters together");
  }
  Options options;
  read_numbers(optim, options, {"tolerance_grad", "tolerance_change"});
  for (const char* key : {"max_iter", "max_eval", "history_size"}) {
    options[key] = static_cast<double>(optim.integer(key));
  }
  options["strong_wolfe"] = optim.text("line_search_fn") == "strong_wolfe" ? 1 : 0;
  return options;
}

std::vector<std::string> state_names(const Options&) { return {"d", "prev_flat_grad", "old_stps", "old_dirs"}; }

std::optional<Shape> state_shape(const Options& options, std::size_t slot, const Shape& parameter) {
  Shape shape = parameter;
  const bool is_of_history = slot == kSteps || slot == kChanges;
  if (is_of_history) shape.insert(shape.begin(), static_cast<std::int64_t>(options.at("history_size")));
  return shape;
}

KeySpecs lbfgs_keys() {
  return {keys::integer("optim.max_iter", "20", "lbfgs: maximum number of iterations per step", 1, 1e6),
          keys::integer("optim.max_eval", "0",
                        "lbfgs: maximum number of loss evaluations per step. 0 = 5/4 of optim.max_iter", 0, 1e9),
          keys::real("optim.tolerance_grad", "1e-7",
                     "lbfgs: a step ends when no element of the gradient is larger than this", 0),
          keys::real("optim.tolerance_change", "1e-9",
                     "lbfgs: a step ends when neither a parameter nor the loss changes by more than this", 0),
          keys::integer("optim.history_size", "100",
                        "lbfgs: number of past iterations that approximate the curvature; requires memory for twice as "
                        "many copies of the parameters",
                        1, 10000),
          keys::choice("optim.line_search_fn", "none",
                       "lbfgs: line search. none = steps of length lr; strong_wolfe = search from lr for a point that "
                       "satisfies the strong Wolfe conditions",
                       {"none", "strong_wolfe"})};
}

}  // namespace

Rule lbfgs_rule() {
  return {.name = "lbfgs",
          .help =
              "Limited-memory BFGS, which evaluates the loss several times per step; for large batches, usually with "
              "lr=1 and line_search_fn=strong_wolfe",
          .keys = lbfgs_keys(),
          .read = read,
          .state_names = state_names,
          .kind = ClosureRule{.step = step_by_lbfgs,
                              .state_shape = state_shape,
                              .numbers = {"n_iter", "func_evals", "learnt", "t"}},
          .counts_every_step = true};
}

}  // namespace lockstep::optim
