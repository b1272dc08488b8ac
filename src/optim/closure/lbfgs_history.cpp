// SPDX-License-Identifier: BSD-3-Clause
#include "optim/closure/lbfgs_history.hpp"

#include <algorithm>
#include <any>

namespace lockstep::optim {

namespace {

using Measure = ClosureStep::Measure;

constexpr double kMinCurvature = 1e-10;  // steps of less curvature are not added to the history

/// The matrix without the first row and the first column.
void drop_first(std::vector<std::vector<double>>& matrix) {
  matrix.erase(matrix.begin());
  for (auto& row : matrix) row.erase(row.begin());
}

}  // namespace

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

}  // namespace lockstep::optim
