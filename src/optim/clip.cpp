// SPDX-License-Identifier: BSD-3-Clause
#include "optim/clip.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "core/numbers/dtype.hpp"
#include "core/numbers/processor_level.hpp"
#include "kernels/optimizers.hpp"
#include "optim/rules/piece_sums.hpp"

namespace lockstep::optim {

namespace {

template <class T>
double sum_of_powers(const T* values, std::int64_t count, double power, double factor) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += std::pow(std::abs(static_cast<double>(values[i]) * factor), power);
  return sum;
}

/// Infinity where any value is not finite: a comparison would skip a NaN.
template <class T>
double largest_magnitude(const T* values, std::int64_t count) {
  T largest = 0;
  bool are_finite = true;
  for (std::int64_t i = 0; i < count; ++i) {
    const T magnitude = std::abs(values[i]);
    are_finite = are_finite && magnitude <= std::numeric_limits<T>::max();
    largest = magnitude > largest ? magnitude : largest;
  }
  return are_finite ? static_cast<double>(largest) : std::numeric_limits<double>::infinity();
}

template <class T>
LOCKSTEP_INLINE std::int64_t count_finite(const T* values, std::int64_t count) {
  std::int64_t finite = 0;
  for (std::int64_t i = 0; i < count; ++i) finite += std::abs(values[i]) <= std::numeric_limits<T>::max() ? 1 : 0;
  return finite;
}

/// Calls `visit(piece, values)` for every piece of this rank, with values of the type that they have, those of 16 bits
/// as float32.
template <class Visit>
void visit_values(FlatParameters& parameters, const Visit& visit) {
  const auto blocks = parameters.blocks();
  parameters.visit_gradients(
      [&](const GradientPiece& given) {
        const DType dtype = blocks[given.block].dtype;
        for_each_part(given, kPieceElements, size_of(dtype), [&](const GradientPiece& piece) {
          if (dtype == DType::float64) return visit(piece, reinterpret_cast<const double*>(piece.values));
          if (dtype == DType::float32) return visit(piece, reinterpret_cast<const float*>(piece.values));
          std::array<float, kPieceElements> widened;  // uninitialized: filled as far as it is used
          half_format(dtype).widen(piece.values, widened.data(), static_cast<std::size_t>(piece.count));
          visit(piece, widened.data());
        });
      },
      /*is_last=*/false);
}

/// A p-norm from what pieces contribute: a sum, or for an infinite p a maximum.
class Norm {
 public:
  Norm(double p, double factor) : p_(p), factor_(factor) {
    if (!(p > 0)) throw std::invalid_argument("gradient_norm: norm_type must be positive");
  }

  template <class T>
  double contribution(const T* values, std::int64_t count) const {
    if (p_ == 2) return kernels::sum_of_squares(values, count);
    if (std::isinf(p_)) return largest_magnitude(values, count);
    return sum_of_powers(values, count, p_, factor_);  // scaled before the powers are taken, because powers overflow
  }

  /// Leaves `contributions` changed.
  double total(std::span<double> contributions) const {
    if (contributions.empty()) return 0;
    if (std::isinf(p_)) return *std::max_element(contributions.begin(), contributions.end()) * factor_;
    const double sum = sum_by_tree(contributions);
    return p_ == 2 ? std::sqrt(sum) * factor_ : std::pow(sum, 1 / p_);
  }

  /// The contributions of every piece of every rank.
  std::vector<double> contributions(FlatParameters& parameters, const PieceNumbers& pieces) const {
    std::vector<double> all(pieces.count());
    visit_values(parameters, [&](const GradientPiece& piece, const auto* values) {
      all[pieces.place_of(piece)] = contribution(values, piece.count);
    });
    parameters.sum_over_owners(all);  // each has one owner: the others add 0
    return all;
  }

 private:
  double p_;
  double factor_;
};

}  // namespace

double gradient_norm(FlatParameters& parameters, double norm_type, double factor) {
  const Norm norm(norm_type, factor);
  std::vector<double> contributions = norm.contributions(parameters, PieceNumbers(parameters.blocks()));
  return norm.total(contributions);
}

std::vector<double> gradient_norms_by_group(const Optimizer& optimizer, FlatParameters& parameters, double norm_type,
                                            double factor) {
  const Norm norm(norm_type, factor);
  const auto blocks = parameters.blocks();
  const PieceNumbers pieces(blocks);
  std::vector<double> contributions = norm.contributions(parameters, pieces);
  std::vector<std::vector<double>> by_group(optimizer.groups().size());
  for_each_segment(blocks, [&](std::size_t b, std::size_t s) {
    const std::span<double> part = pieces.part(contributions, b, s);
    std::vector<double>& group = by_group[optimizer.group_of(b, s)];
    group.insert(group.end(), part.begin(), part.end());
  });
  std::vector<double> norms;
  for (std::vector<double>& group : by_group) norms.push_back(norm.total(group));
  return norms;
}

double norm_of_parts(std::span<const double> norms, double norm_type) {
  std::vector<double> contributions;
  for (const double norm : norms) contributions.push_back(std::isinf(norm_type) ? norm : std::pow(norm, norm_type));
  return Norm(norm_type, 1).total(contributions);
}

bool are_gradients_finite(FlatParameters& parameters) {
  double faults = 0;
  visit_values(parameters, [&faults](const GradientPiece& piece, const auto* values) {
    faults += static_cast<double>(piece.count -
                                  at_level<count_finite<std::remove_cvref_t<decltype(*values)>>>(values, piece.count));
  });
  parameters.sum_over_owners({&faults, 1});
  return faults == 0;
}

GradientChange change_by(const Clip& clip, double norm) {
  GradientChange change;
  if (clip.max_norm > 0) {
    const double factor = clip.max_norm / (norm + 1e-6);
    if (!(factor >= 1)) change.factor = factor;  // a norm of NaN makes every gradient NaN: nobody takes it for clipped
  }
  if (clip.max_value > 0) change.limit = clip.max_value;
  return change;
}

}  // namespace lockstep::optim
