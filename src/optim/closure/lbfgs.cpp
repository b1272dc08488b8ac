// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <torch/types.h>

#include <algorithm>
#include <any>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "optim/closure/closure_step.hpp"
#include "optim/closure/line_search.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

// ---- the history

/// State arrays of lbfgs.
enum LbfgsState : std::size_t { kDirection, kLastGradient, kSteps, kChanges };

/// A step, and what it did to the gradient.
struct Curvature {
  Vector step;
  Vector change;
};

/// The history of the last steps, and of what they did to the gradient: what is known of the curvature.
///
/// Directions are found from the products of all these vectors with each other and with the gradient, so that one
/// collective brings all that an iteration has to know. Products are kept from step to step; they are formed again
/// where they are not those of the vectors.
class LbfgsHistory {
 public:
  /// Collective.
  explicit LbfgsHistory(ClosureStep& step);

  /// The measures that `downhill` must know, after what `measures` already requests.
  /// @param gradient  where the search is now; outlives the measures, as `found` does
  /// @param found     on the way there
  void ask(std::vector<ClosureStep::Measure>& measures, const Vector& gradient,
           const std::optional<Curvature>& found) const;
  /// Learns from `found`, unless it curves too little, and gives the gradient times the inverse curvature, downhill.
  /// @param measured  the answers
  Vector downhill(std::span<const double> measured, const Vector& gradient, const std::optional<Curvature>& found);

 private:
  using SquareMatrix = std::vector<std::vector<double>>;
  struct Products {
    SquareMatrix of_both;     // [i][j] step i . change j, oldest first
    SquareMatrix of_changes;  // [i][j] change i . change j
  };
  /// About one pair.
  struct PairProducts {
    double step_slope;    // step . gradient
    double change_slope;  // change . gradient
    // The values that were found, times this pair.
    double step_by_change = 0;  // step of this, change of that
    double change_by_change = 0;
    double change_by_step = 0;
  };

  void take(std::int64_t learnt);
  void form_products();
  void learn(const Curvature& found, std::span<const PairProducts> answers);
  Vector direction(const Vector& gradient, std::span<const PairProducts> answers) const;

  ClosureStep* step_;
  std::int64_t size_;
  std::vector<Curvature> pairs_;  // oldest first
  Products* products_;            // products of pairs_, kept in the memo of step_
};

using Measure = ClosureStep::Measure;

constexpr double kMinCurvature = 1e-10;  // steps of less curvature are not added to the history

/// The matrix without the first row and the first column.
void drop_first(std::vector<std::vector<double>>& matrix) {
  matrix.erase(matrix.begin());
  for (auto& row : matrix) row.erase(row.begin());
}

LbfgsHistory::LbfgsHistory(ClosureStep& step)
    : step_(&step), size_(static_cast<std::int64_t>(step.options().at("history_size"))) {
  if (!step.memo().has_value()) step.memo() = Products();
  products_ = &std::any_cast<Products&>(step.memo());
  const auto learnt = static_cast<std::int64_t>(step.numbers().at("learnt"));
  for (std::int64_t i = std::max<std::int64_t>(0, learnt - size_); i < learnt; ++i) take(i);
  std::vector<Measure> measures;
  for (const Curvature& pair : pairs_) {
    measures.push_back({&pair.change, &pair.step});
    measures.push_back({&pair.change, &pair.change});
  }
  const std::vector<double> measured = measures.empty() ? std::vector<double>() : step.measure(measures);
  bool are_ours = products_->of_both.size() == pairs_.size();
  for (std::size_t i = 0; are_ours && i < pairs_.size(); ++i) {
    are_ours = products_->of_both[i][i] == measured[2 * i] && products_->of_changes[i][i] == measured[2 * i + 1];
  }
  if (!are_ours) form_products();
}

void LbfgsHistory::take(std::int64_t learnt) {
  pairs_.push_back(
      {.step = step_->state_row(kSteps, learnt % size_), .change = step_->state_row(kChanges, learnt % size_)});
}

void LbfgsHistory::form_products() {
  const std::size_t count = pairs_.size();
  std::vector<Measure> measures;
  for (const Curvature& of_row : pairs_) {
    for (const Curvature& of_column : pairs_) {
      measures.push_back({&of_row.step, &of_column.change});
      measures.push_back({&of_row.change, &of_column.change});
    }
  }
  const std::vector<double> measured = measures.empty() ? std::vector<double>() : step_->measure(measures);
  *products_ = {.of_both = SquareMatrix(count, std::vector<double>(count)),
                .of_changes = SquareMatrix(count, std::vector<double>(count))};
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < count; ++j) {
      products_->of_both[i][j] = measured[2 * (i * count + j)];
      products_->of_changes[i][j] = measured[2 * (i * count + j) + 1];
    }
  }
}

void LbfgsHistory::ask(std::vector<Measure>& measures, const Vector& gradient,
                       const std::optional<Curvature>& found) const {
  const auto ask_of = [&](const Curvature& pair) {
    measures.push_back({&pair.step, &gradient});
    measures.push_back({&pair.change, &gradient});
    if (!found) return;
    measures.push_back({&pair.step, &found->change});
    measures.push_back({&pair.change, &found->change});
    measures.push_back({&pair.change, &found->step});
  };
  for (const Curvature& pair : pairs_) ask_of(pair);
  if (found) ask_of(*found);
}

Vector LbfgsHistory::downhill(std::span<const double> measured, const Vector& gradient,
                              const std::optional<Curvature>& found) {
  std::vector<PairProducts> answers;
  for (std::size_t position = 0; position < measured.size(); position += found ? 5 : 2) {
    PairProducts& of_pair =
        answers.emplace_back(PairProducts{.step_slope = measured[position], .change_slope = measured[position + 1]});
    if (!found) continue;
    of_pair.step_by_change = measured[position + 2];
    of_pair.change_by_change = measured[position + 3];
    of_pair.change_by_step = measured[position + 4];
  }
  if (found && !(answers.back().step_by_change > kMinCurvature)) {
    answers.pop_back();
  } else if (found) {
    const bool is_full = static_cast<std::int64_t>(pairs_.size()) == size_;
    if (is_full) answers.erase(answers.begin());
    learn(*found, answers);
  }
  return direction(gradient, answers);
}

/// @param answers  about the pairs that stay, and then about `found`
void LbfgsHistory::learn(const Curvature& found, std::span<const PairProducts> answers) {
  if (answers.size() == pairs_.size()) {  // the oldest is replaced
    pairs_.erase(pairs_.begin());
    drop_first(products_->of_both);
    drop_first(products_->of_changes);
  }
  const auto learnt = static_cast<std::int64_t>(step_->numbers().at("learnt")++);
  assign(step_->state_row(kSteps, learnt % size_), found.step);
  assign(step_->state_row(kChanges, learnt % size_), found.change);
  take(learnt);
  std::vector<double>& steps_row = products_->of_both.emplace_back();
  std::vector<double>& changes_row = products_->of_changes.emplace_back();
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (i + 1 < answers.size()) {
      products_->of_both[i].push_back(answers[i].step_by_change);
      products_->of_changes[i].push_back(answers[i].change_by_change);
    }
    steps_row.push_back(answers[i].change_by_step);
    changes_row.push_back(answers[i].change_by_change);
  }
}

/// The two loops over the history, on products alone; then one sum of vectors.
Vector LbfgsHistory::direction(const Vector& gradient, std::span<const PairProducts> answers) const {
  const std::size_t count = pairs_.size();
  const SquareMatrix& of_both = products_->of_both;
  const SquareMatrix& of_changes = products_->of_changes;
  std::vector<double> coefficients(count);  // coefficients of the changes in the result of the first loop
  for (std::size_t i = count; i-- > 0;) {
    double product = -answers[i].step_slope;
    for (std::size_t j = i + 1; j < count; ++j) product -= coefficients[j] * of_both[i][j];
    coefficients[i] = product / of_both[i][i];
  }
  const double scale = count == 0 ? 1 : of_both.back().back() / of_changes.back().back();
  std::vector<double> steps(count);  // coefficients of the steps in the direction
  for (std::size_t i = 0; i < count; ++i) {
    double product = -answers[i].change_slope;
    for (std::size_t j = 0; j < count; ++j) product -= coefficients[j] * of_changes[i][j];
    product *= scale;
    for (std::size_t j = 0; j < i; ++j) product += steps[j] * of_both[j][i];
    steps[i] = coefficients[i] - product / of_both[i][i];
  }
  const Vector direction = product(gradient, -scale);
  for (std::size_t i = 0; i < count; ++i) {
    add(direction, -scale * coefficients[i], pairs_[i].change);
    add(direction, steps[i], pairs_[i].step);
  }
  return direction;
}

// ---- the steps

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

KeySpecs lbfgs_keys() {
  return {lr_key("1"),
          keys::integer("optim.max_iter", "20", "lbfgs: maximum number of iterations per step", 1, 1e6),
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
  Options options = read_keys(optim, lbfgs_keys());
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

}  // namespace

Rule lbfgs_rule() {
  return {.name = "lbfgs",
          .help =
              "Limited-memory BFGS, which evaluates the loss several times per step; for large batches, usually with "
              "line_search_fn=strong_wolfe",
          .keys = lbfgs_keys(),
          .read = read,
          .state_names = state_names,
          .kind = ClosureRule{.step = step_by_lbfgs,
                              .state_shape = state_shape,
                              .numbers = {"n_iter", "func_evals", "learnt", "t"}},
          .counts_every_step = true};
}

}  // namespace lockstep::optim
