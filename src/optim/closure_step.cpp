// SPDX-License-Identifier: BSD-3-Clause
#include "optim/closure_step.hpp"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "optim/piece_sums.hpp"

namespace lockstep::optim {

namespace {

at::ScalarType type_of(const Block& block) { return block.dtype == DType::float64 ? at::kDouble : at::kFloat; }

/// [count] Borrowed memory.
at::Tensor flat(std::byte* values, std::int64_t count, at::ScalarType type) {
  return at::from_blob(values, {count}, type);
}

template <class T>
double sum_of_products_at(const at::Tensor& a, const at::Tensor& b, std::int64_t begin, std::int64_t count) {
  return sum_of_products(a.const_data_ptr<T>() + begin, b.const_data_ptr<T>() + begin, count);
}

}  // namespace

ClosureStep::ClosureStep(Optimizer& optimizer, FlatParameters& parameters, const std::function<double()>& closure)
    : optimizer_(&optimizer), parameters_(&parameters), closure_(&closure) {
  for (std::size_t b = 0; b < parameters.blocks().size(); ++b) {
    const Block& block = parameters.blocks()[b];
    for (std::size_t s = 0; s < block.segments.size(); ++s) {
      const Segment& segment = block.segments[s];
      const std::size_t number = parameter_count_++;
      if (segment.own_begin == segment.own_end) continue;
      std::byte* const values = block.parameters + segment.offset * static_cast<std::int64_t>(size_of(block.dtype));
      owned_.push_back(
          {.block = b, .segment = s, .number = number, .parameter = flat(values, segment.count, type_of(block))});
    }
  }
}

Vector ClosureStep::state_row(std::size_t slot, std::int64_t row) const {
  Vector rows;
  for (const OwnedParameter& owned : owned_) {
    const StateArray state = optimizer_->state_of(owned.block, owned.segment, slot).value();
    const std::int64_t count = owned.parameter.numel();
    std::byte* const values = state.values + row * count * static_cast<std::int64_t>(size_of(state.dtype));
    rows.push_back(flat(values, count, owned.parameter.scalar_type()));
  }
  return rows;
}

ClosureStep::Point ClosureStep::evaluate() {
  Point point{.loss = (*closure_)(), .gradient = {}};
  parameters_->finish_gradients();
  for (const OwnedParameter& owned : owned_) point.gradient.push_back(at::zeros_like(owned.parameter));
  take_gradients(point.gradient);
  parameters_->drop_gradients();
  if (so_far_.evaluations++ == 0) so_far_.grad_norm = std::sqrt(dot(point.gradient, point.gradient));
  return point;
}

void ClosureStep::take_gradients(const Vector& to) {
  std::size_t i = 0;  // pieces come in the order of parameters
  parameters_->visit_gradients(
      [&](const GradientPiece& piece) {
        while (owned_[i].block != piece.block || owned_[i].segment != piece.segment) ++i;
        const auto bytes = static_cast<std::int64_t>(to[i].element_size());
        std::memcpy(static_cast<std::byte*>(to[i].mutable_data_ptr()) + piece.begin * bytes, piece.values,
                    static_cast<std::size_t>(piece.count * bytes));
      },
      /*is_last=*/true);
}

Vector ClosureStep::position() const {
  Vector position;
  for (const OwnedParameter& owned : owned_) position.push_back(owned.parameter.clone());
  return position;
}

void ClosureStep::move_to(const Vector& from, double factor, const Vector& along) {
  parameters_->write([&] {
    for (std::size_t i = 0; i < owned_.size(); ++i) at::add_out(owned_[i].parameter, from[i], along[i], factor);
  });
}

/// Of one piece of a vector.
double ClosureStep::measure_part(const Measure& measure, std::size_t i, std::int64_t begin, std::int64_t count) const {
  const at::Tensor& a = (*measure.a)[i];
  if (measure.b == nullptr) return a.narrow(0, begin, count).abs().max().item<double>();
  const at::Tensor& b = (*measure.b)[i];
  return a.scalar_type() == at::kDouble ? sum_of_products_at<double>(a, b, begin, count)
                                        : sum_of_products_at<float>(a, b, begin, count);
}

/// Parameters have one owner each, who sums their pieces.
std::vector<double> ClosureStep::measure(std::span<const Measure> measures) const {
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
