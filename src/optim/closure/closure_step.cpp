// SPDX-License-Identifier: BSD-3-Clause
#include "optim/closure/closure_step.hpp"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "kernels/optimizers.hpp"
#include "optim/rules/piece_sums.hpp"
#include "optim/update/tensor_parameters.hpp"

namespace lockstep::optim {

namespace {

/// A copy in float64.
at::Tensor as_one(const Vector& vector) { return at::cat(vector).to(at::kDouble); }

template <class T>
double sum_of_products_at(const at::Tensor& a, const at::Tensor& b, std::int64_t begin, std::int64_t count) {
  return kernels::sum_of_products(a.const_data_ptr<T>() + begin, b.const_data_ptr<T>() + begin, count);
}

}  // namespace

// The operations refuse empty lists.

Vector sum(const Vector& a, double factor, const Vector& b) {
  return a.empty() ? Vector() : at::_foreach_add(a, b, factor);
}

Vector product(const Vector& a, double factor) { return a.empty() ? Vector() : at::_foreach_mul(a, factor); }

Vector signs(const Vector& a) { return a.empty() ? Vector() : at::_foreach_sign(a); }

void add(const Vector& target, double factor, const Vector& values) {
  if (!target.empty()) at::_foreach_add_(target, values, factor);
}

void assign(const Vector& target, const Vector& from) {
  if (!target.empty()) at::_foreach_copy_(target, from);
}

// ---- a step

ClosureStep::ClosureStep(Optimizer& optimizer, FlatParameters& parameters, const std::function<double()>& closure)
    : optimizer_(&optimizer), parameters_(&parameters), tensors_(parameters.as_tensors()), closure_(&closure) {
  for_each_segment(parameters.blocks(), [&](std::size_t b, std::size_t s) {
    const Segment& segment = parameters.blocks()[b].segments[s];
    const std::size_t number = parameter_count_++;
    if (segment.own_begin == segment.own_end) return;
    owned_.push_back({.block = b, .segment = s, .number = number, .parameter = flat_parameter(parameters, b, s)});
  });
}

Vector ClosureStep::state_row(std::size_t slot, std::int64_t row) const {
  Vector rows;
  for (const OwnedParameter& owned : owned_) {
    const StateArray state = optimizer_->state_of(owned.block, owned.segment, slot).value();
    const std::int64_t count = owned.parameter.numel();
    std::byte* const values = state.values + row * count * static_cast<std::int64_t>(size_of(state.dtype));
    rows.push_back(flat_view(values, count, owned.parameter.options()));
  }
  return rows;
}

ClosureStep::LossPoint ClosureStep::evaluate() {
  LossPoint point{.loss = (*closure_)(), .gradient = {}};
  parameters_->finish_gradients();
  point.gradient = tensors_ != nullptr ? gradient_tensors() : visited_gradients();
  parameters_->drop_gradients();
  if (so_far_.evaluations++ == 0) so_far_.grad_norm = std::sqrt(dot(point.gradient, point.gradient));
  return point;
}

Vector ClosureStep::gradient_tensors() {
  Vector gradients;
  for (const OwnedParameter& owned : owned_) {
    const bool has_gradient = parameters_->has_gradient(owned.block, owned.segment);
    gradients.push_back(has_gradient ? tensors_->flat_gradient(owned.block, owned.segment).clone()
                                     : at::zeros_like(owned.parameter));
  }
  return gradients;
}

Vector ClosureStep::visited_gradients() {
  Vector target;
  for (const OwnedParameter& owned : owned_) target.push_back(at::zeros_like(owned.parameter));
  std::size_t i = 0;  // pieces come in the order of parameters
  parameters_->visit_gradients(
      [&](const GradientPiece& piece) {
        while (owned_[i].block != piece.block || owned_[i].segment != piece.segment) ++i;
        const auto bytes = static_cast<std::int64_t>(target[i].element_size());
        std::memcpy(static_cast<std::byte*>(target[i].mutable_data_ptr()) + piece.begin * bytes, piece.values,
                    static_cast<std::size_t>(piece.count * bytes));
      },
      /*is_last=*/true);
  return target;
}

Vector ClosureStep::position() const {
  Vector position;
  for (const OwnedParameter& owned : owned_) position.push_back(owned.parameter.clone());
  return position;
}

void ClosureStep::move_to(const Vector& from, double factor, const Vector& along) {
  Vector parameters;
  for (const OwnedParameter& owned : owned_) parameters.push_back(owned.parameter);
  parameters_->write([&] {
    assign(parameters, from);
    add(parameters, factor, along);
  });
}

/// The measures of one piece of a vector.
double ClosureStep::measure_part(const Measure& measure, std::size_t i, std::int64_t begin, std::int64_t count) const {
  const at::Tensor& a = (*measure.a)[i];
  if (measure.b == nullptr) return a.narrow(0, begin, count).abs().max().item<double>();
  const at::Tensor& b = (*measure.b)[i];
  return a.scalar_type() == at::kDouble ? sum_of_products_at<double>(a, b, begin, count)
                                        : sum_of_products_at<float>(a, b, begin, count);
}

/// Computed in float64, as the loops do. The host waits once, for all numbers.
std::vector<double> ClosureStep::measure_tensors(std::span<const Measure> measures) const {
  std::vector<at::Tensor> values;
  std::vector<std::int64_t> are_products;
  const at::Tensor zero = at::zeros({}, tensors_->flat_parameter(0, 0).options().dtype(at::kDouble));
  for (const auto& [a, b] : measures) {
    are_products.push_back(b != nullptr ? 1 : 0);
    values.push_back(owned_.empty() ? zero
                     : b != nullptr ? as_one(*a).mul_(as_one(*b)).sum()
                                    : as_one(*a).abs_().max());
  }
  at::Tensor all = at::stack(values);
  if (tensors_->is_divided()) {
    const at::Tensor sums = all.clone();
    tensors_->sum_over_ranks(sums);
    tensors_->maximum_over_ranks(all);
    all = at::where(at::tensor(are_products).to(all.device()) > 0, sums, all);
  }
  all = all.cpu();
  return {all.const_data_ptr<double>(), all.const_data_ptr<double>() + measures.size()};
}

/// Parameters have one owner each, who sums their pieces.
std::vector<double> ClosureStep::measure(std::span<const Measure> measures) const {
  if (tensors_ != nullptr) return measure_tensors(measures);
  std::vector<double> values(measures.size() * parameter_count_);  // one row for each measure
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    const std::int64_t count = owned_[i].parameter.numel();
    const auto pieces = static_cast<std::size_t>((count + kPieceElements - 1) / kPieceElements);
    std::vector<double> parts(measures.size() * pieces);
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      const std::int64_t begin = static_cast<std::int64_t>(piece) * kPieceElements;
      for (std::size_t k = 0; k < measures.size(); ++k) {
        parts[k * pieces + piece] = measure_part(measures[k], i, begin, std::min(kPieceElements, count - begin));
      }
    }
    for (std::size_t k = 0; k < measures.size(); ++k) {
      const std::span<double> of_measure = std::span(parts).subspan(k * pieces, pieces);
      values[k * parameter_count_ + owned_[i].number] =
          measures[k].b != nullptr ? sum_by_tree(of_measure) : *std::max_element(of_measure.begin(), of_measure.end());
    }
  }
  parameters_->sum_over_owners(values);  // each has one owner: the others add 0
  std::vector<double> results;
  for (std::size_t k = 0; k < measures.size(); ++k) {
    const std::span<double> row = std::span(values).subspan(k * parameter_count_, parameter_count_);
    results.push_back(measures[k].b != nullptr ? sum_by_tree(row) : *std::max_element(row.begin(), row.end()));
  }
  return results;
}

double ClosureStep::dot(const Vector& a, const Vector& b) const {
  const Measure product{.a = &a, .b = &b};
  return measure({&product, 1}).front();
}

ClosureResult Optimizer::step_with_closure(const std::function<double()>& closure) {
  ClosureStep step(*this, *parameters_, closure);
  std::get<ClosureRule>(rule_->kind).step(step);
  count_step();
  return step.so_far();
}

void Optimizer::step_by(const ClosureRule&, Changes) {
  throw std::logic_error("rule '" + rule_->name + "' requires step_with_closure instead of step");
}

}  // namespace lockstep::optim
