// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/minimisation.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "line_search.hpp"
#include "options.hpp"
#include "rules.hpp"

namespace lockstep::optim {

namespace {

constexpr double kLeastCurvature = 1e-10;  // of a step that is learnt from
constexpr std::int64_t kMostTries = 25;    // of one line search
enum Slot : std::size_t { kDirection, kLastGradient, kSteps, kChanges };

void assign(const Vector& to, const Vector& from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}

/// a + factor * b
Vector sum(const Vector& a, double factor, const Vector& b) {
  Vector result;
  for (std::size_t i = 0; i < a.size(); ++i) result.push_back(a[i].add(b[i], factor));
  return result;
}

void add(const Vector& to, double factor, const Vector& values) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i].add_(values[i], factor);
}

Vector product(const Vector& a, double factor) {
  Vector result;
  for (const at::Tensor& part : a) result.push_back(part.mul(factor));
  return result;
}

double sum_of_magnitudes(const Minimisation& problem, const Vector& a) {
  Vector signs;
  for (const at::Tensor& part : a) signs.push_back(part.sign());
  return problem.dot(a, signs);
}

/// Of the last steps, and of what they did to the gradient: what is known of the curvature.
class History {
 public:
  explicit History(Minimisation& problem)
      : problem_(&problem), size_(static_cast<std::int64_t>(problem.options().at("history_size"))) {
    const auto learnt = static_cast<std::int64_t>(problem.numbers().at("learnt"));
    for (std::int64_t i = std::max<std::int64_t>(0, learnt - size_); i < learnt; ++i) take(i);
  }

  void learn(const Vector& step, const Vector& change) {
    if (!(problem_->dot(change, step) > kLeastCurvature)) return;
    const auto learnt = static_cast<std::int64_t>(problem_->numbers().at("learnt")++);
    assign(problem_->state_row(kSteps, learnt % size_), step);  // over the oldest, once there are as many
    assign(problem_->state_row(kChanges, learnt % size_), change);
    if (static_cast<std::int64_t>(pairs_.size()) == size_) pairs_.erase(pairs_.begin());
    take(learnt);
  }

  /// The gradient times the inverse curvature, downhill.
  Vector downhill(const Vector& gradient) const {
    Vector direction = product(gradient, -1);
    std::vector<double> shares(pairs_.size());
    for (std::size_t i = pairs_.size(); i-- > 0;) {
      shares[i] = problem_->dot(pairs_[i].step, direction) * pairs_[i].inverse_product;
      add(direction, -shares[i], pairs_[i].change);
    }
    direction = product(direction, scale_);
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      const double back = problem_->dot(pairs_[i].change, direction) * pairs_[i].inverse_product;
      add(direction, shares[i] - back, pairs_[i].step);
    }
    return direction;
  }

 private:
  struct Pair {
    Vector step;
    Vector change;
    double inverse_product;
  };

  void take(std::int64_t learnt) {
    Pair pair{.step = problem_->state_row(kSteps, learnt % size_),
              .change = problem_->state_row(kChanges, learnt % size_),
              .inverse_product = 0};
    const double product = problem_->dot(pair.change, pair.step);
    pair.inverse_product = 1 / product;
    scale_ = product / problem_->dot(pair.change, pair.change);
    pairs_.push_back(std::move(pair));
  }

  Minimisation* problem_;
  std::int64_t size_;
  std::vector<Pair> pairs_;  // oldest first
  double scale_ = 1;         // of the first guess of the inverse curvature
};

class Lbfgs {
 public:
  explicit Lbfgs(Minimisation& problem)
      : problem_(&problem),
        options_(&problem.options()),
        history_(problem),
        direction_(problem.state(kDirection)),
        last_gradient_(problem.state(kLastGradient)) {}

  void run() {
    at_ = problem_->evaluate();
    if (!std::isfinite(problem_->so_far().grad_norm)) return;
    const auto most = static_cast<std::int64_t>(options_->at("max_iter"));
    for (std::int64_t i = 1; i <= most && std::isfinite(at_.loss) && !is_optimal(); ++i) {
      choose_direction();
      const double slope = problem_->dot(at_.gradient, direction_);
      if (!(slope <= -option("tolerance_change"))) return;
      const double last_loss = at_.loss;
      if (option("strong_wolfe") != 0) {
        search(slope);
      } else {
        problem_->move_to(problem_->position(), length(), direction_);
        if (i == most) return;  // the next step evaluates here
        at_ = problem_->evaluate();
      }
      const bool is_still = problem_->largest_magnitude(direction_) * std::abs(length()) <= option("tolerance_change");
      const bool is_level = std::abs(at_.loss - last_loss) < option("tolerance_change");
      if (is_still || is_level || evaluations_left() <= 0) return;
    }
  }

 private:
  double option(const char* name) const { return options_->at(name); }
  /// Of the last step, in units of direction_.
  double& length() { return problem_->numbers().at("t"); }
  bool is_optimal() const { return problem_->largest_magnitude(at_.gradient) <= option("tolerance_grad"); }
  std::int64_t evaluations_left() const {
    const auto given = static_cast<std::int64_t>(option("max_eval"));
    const auto most = given == 0 ? static_cast<std::int64_t>(option("max_iter")) * 5 / 4 : given;
    return most - problem_->so_far().evaluations;
  }

  void choose_direction() {
    const bool is_first = ++problem_->numbers().at("n_iter") == 1;
    if (!is_first) history_.learn(product(direction_, length()), sum(at_.gradient, -1, last_gradient_));
    assign(direction_, history_.downhill(at_.gradient));
    assign(last_gradient_, at_.gradient);
    length() = option("lr");
    if (is_first) length() *= std::min(1.0, 1 / sum_of_magnitudes(*problem_, at_.gradient));
  }

  /// To where the loss along the direction is low and flat enough.
  void search(double slope) {
    const Vector start = problem_->position();
    const auto at = [&](double length) {
      problem_->move_to(start, length, direction_);
      Minimisation::Point point = problem_->evaluate();
      const double trial_slope = problem_->dot(point.gradient, direction_);
      return Trial{.at = length, .point = std::move(point), .slope = trial_slope};
    };
    Trial found = search_line(at, {.at = 0, .point = at_, .slope = slope}, length(),
                              {.tolerance = option("tolerance_change") / problem_->largest_magnitude(direction_),
                               .most_tries = std::min(kMostTries, evaluations_left())});
    problem_->move_to(start, found.at, direction_);
    length() = found.at;
    at_ = std::move(found.point);
  }

  Minimisation* problem_;
  const Options* options_;
  History history_;
  Vector direction_;
  Vector last_gradient_;
  Minimisation::Point at_;
};

void minimise(Minimisation& problem) {
  Lbfgs(problem).run();
  problem.numbers().at("func_evals") += static_cast<double>(problem.so_far().evaluations);
}

Options read(const Section& optim) {
  const std::pair<const char*, bool> others[] = {{"weight_decay", optim.real("weight_decay") != 0},
                                                 {"maximize", optim.boolean("maximize")},
                                                 {"no_decay", optim.text("no_decay") != "none"},
                                                 {"paramwise", !optim.texts("paramwise").empty()}};
  for (const auto& [key, is_set] : others) {
    if (!is_set) continue;
    throw ConfigError(optim.cite(key) +
                      " has no place beside optim.name=lbfgs, which minimises the loss itself, over " +
                      "all parameters as one");
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

KeySpecs keys() {
  return {{.name = "optim.max_iter",
           .type = KeyType::integer,
           .default_value = "20",
           .help = "lbfgs: iterations of a step, at most",
           .min = 1,
           .max = 1e6},
          {.name = "optim.max_eval",
           .type = KeyType::integer,
           .default_value = "0",
           .help = "lbfgs: evaluations of the loss after which a step ends; 0: 5/4 of optim.max_iter",
           .min = 0,
           .max = 1e9},
          {.name = "optim.tolerance_grad",
           .type = KeyType::real,
           .default_value = "1e-7",
           .help = "lbfgs: a step ends once no element of the gradient is larger",
           .min = 0},
          {.name = "optim.tolerance_change",
           .type = KeyType::real,
           .default_value = "1e-9",
           .help = "lbfgs: a step ends once neither a parameter nor the loss changes by more",
           .min = 0},
          {.name = "optim.history_size",
           .type = KeyType::integer,
           .default_value = "100",
           .help = "lbfgs: iterations that the curvature is learnt from; the memory is that of twice as many models",
           .min = 1,
           .max = 10000},
          {.name = "optim.line_search_fn",
           .type = KeyType::choice,
           .default_value = "none",
           .help = "lbfgs: how far an iteration goes along its direction: as far as lr says, or with strong_wolfe to "
                   "where the loss is low and flat enough, from lr on",
           .choices = {"none", "strong_wolfe"}}};
}

}  // namespace

Rule lbfgs_rule() {
  return {.name = "lbfgs",
          .help =
              "limited-memory BFGS, which evaluates the loss of a step's batch several times: for large batches, "
              "with lr=1 and line_search_fn=strong_wolfe",
          .keys = keys(),
          .read = read,
          .state_names = state_names,
          .is_whole = true,
          .state_shape = state_shape,
          .minimise = minimise,
          .numbers = {"n_iter", "func_evals", "learnt", "t"},
          .counts_every_step = true};
}

}  // namespace lockstep::optim
