// SPDX-License-Identifier: BSD-3-Clause
// Losses of fields: norms of each channel of each sample.
#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

#include "core/text/text.hpp"
#include "models/losses/field_weights.hpp"
#include "models/losses/loss_rows.hpp"

namespace lockstep::models {

namespace {

constexpr double kNormEpsilon = 1e-8;  // added to the norms of targets
constexpr std::int64_t kFirstSpaceAxis = 2;
constexpr std::int64_t kMaxSpaceAxes = 3;
constexpr std::int64_t kMinPointsOfEnds = 4;  // one-sided differences at the ends of an axis read 4

/// A norm of fields.
struct FieldNorm {
  int power = 2;
  bool has_derivatives = false;  ///< the squares of all first derivatives are added
  bool is_relative = true;       ///< divided by the norm of the target
};

struct FieldLossOptions {
  FieldWeights weights;
  bool is_sum = false;
  std::vector<double> measures = {1};    // extent of space: one for all axes, or one for each
  std::vector<bool> periodic = {false};  // one for all axes, or one for each
};

/// The value of a key that has one value for all axes, or one for each.
template <class Value>
Value of_axis(const std::vector<Value>& values, std::int64_t axis, std::int64_t axes, const char* key) {
  if (values.size() == 1) return values.front();
  if (static_cast<std::int64_t>(values.size()) == axes) return values[static_cast<std::size_t>(axis)];
  throw ConfigError(std::string(key) + ": " + std::to_string(values.size()) + " values are given for " +
                    std::to_string(axes) + " axes of space; give one, or one for each axis");
}

/// The distance of neighboring points of an axis.
double spacing(const at::Tensor& fields, std::int64_t axis, const FieldLossOptions& options) {
  return of_axis(options.measures, axis, fields.dim() - kFirstSpaceAxis, "loss.measure") /
         static_cast<double>(fields.size(kFirstSpaceAxis + axis));
}

/// Central differences; at the ends of an axis that is not periodic, one-sided differences of third order.
at::Tensor derivative(const at::Tensor& f, std::int64_t axis, const FieldLossOptions& options) {
  const std::int64_t dim = kFirstSpaceAxis + axis;
  const double h = spacing(f, axis, options);
  if (of_axis(options.periodic, axis, f.dim() - kFirstSpaceAxis, "loss.periodic")) {
    return (f.roll(-1, dim) - f.roll(1, dim)) / (2 * h);
  }
  const std::int64_t n = f.size(dim);
  if (n < kMinPointsOfEnds) {
    throw DataError("the derivatives of fields of shape " + batch::shape_text(f) + " need at least 4 points along " +
                    "each axis that is not periodic; choose another loss.name, or see loss.periodic");
  }
  const auto point = [&](std::int64_t i) { return f.narrow(dim, i, 1); };
  const at::Tensor first = (-11 * point(0) + 18 * point(1) - 9 * point(2) + 2 * point(3)) / (6 * h);
  const at::Tensor last = (-2 * point(n - 4) + 9 * point(n - 3) - 18 * point(n - 2) + 11 * point(n - 1)) / (6 * h);
  const at::Tensor inner = (f.narrow(dim, 2, n - 2) - f.narrow(dim, 0, n - 2)) / (2 * h);
  return at::cat({first, inner, last}, dim);
}

/// The norm of each channel, a sum over points that is not divided by their number: [N, C].
at::Tensor norm_of(const at::Tensor& fields, const FieldNorm& norm, const FieldLossOptions& options) {
  std::vector<at::Tensor> terms = {fields};
  for (std::int64_t axis = 0; norm.has_derivatives && axis < fields.dim() - kFirstSpaceAxis; ++axis) {
    terms.push_back(derivative(fields, axis, options));
  }
  const at::Tensor area = options.weights.area(fields);
  for (at::Tensor& term : terms) {
    if (area.defined()) term = term * (norm.power == 2 ? area.sqrt() : area);
    term = term.flatten(kFirstSpaceAxis);
  }
  return at::linalg_vector_norm(terms.size() == 1 ? terms.front() : at::cat(terms, -1), norm.power, {-1});
}

void require_fields(const at::Tensor& output, const at::Tensor& target, const Section& loss) {
  const std::int64_t axes = output.dim() - kFirstSpaceAxis;
  if (output.sizes() == target.sizes() && axes >= 1 && axes <= kMaxSpaceAxes) return;
  throw DataError(loss.cite("name") + ": " + loss.text("name") +
                  " needs outputs and targets of one shape [N, C, space...] with 1 to 3 axes of space, not " +
                  batch::shape_text(output) + " and " + batch::shape_text(target));
}

/// The norm of the error of each channel: [N, C].
at::Tensor error_norm(const at::Tensor& output, const at::Tensor& target, const FieldNorm& norm,
                      const FieldLossOptions& options) {
  const at::Tensor error = norm_of(output - target, norm, options);
  if (norm.is_relative) return error / (norm_of(target, norm, options) + kNormEpsilon);
  double volume = 1;
  for (std::int64_t axis = 0; axis < output.dim() - kFirstSpaceAxis; ++axis) volume *= spacing(output, axis, options);
  return error * std::pow(volume, 1.0 / norm.power);
}

std::vector<bool> periodic_axes(const Section& loss) {
  std::vector<bool> axes;
  for (const std::string& word : words_in(loss.text("periodic"))) {
    if (word != "true" && word != "false") {
      throw ConfigError(loss.cite("periodic") + ": '" + word + "' is neither true nor false");
    }
    axes.push_back(word == "true");
  }
  if (axes.empty()) throw ConfigError(loss.cite("periodic") + ": give true or false, for all axes or for each");
  return axes;
}

FieldLossOptions options_of(const Section& loss, const Task& task) {
  FieldLossOptions options{.weights = FieldWeights::from(loss, task), .is_sum = loss.text("reduction") == "sum"};
  if (loss.has("measure")) options.measures = loss.reals("measure");
  if (loss.has("periodic")) options.periodic = periodic_axes(loss);
  for (const double measure : options.measures) {
    if (!(measure > 0)) throw ConfigError(loss.cite("measure") + ": the extent of space must be greater than 0");
  }
  return options;
}

Loss make_field_loss(const Section& loss, const Task& task, const FieldNorm& norm) {
  require_task(loss, task, {TaskKind::regression});
  const auto value = [loss, norm, options = options_of(loss, task)](const batch::Outputs& outputs,
                                                                    const batch::Batch& batch, bool) {
    const at::Tensor output = in_float32(outputs.main());
    const at::Tensor target = batch.target().to(output.scalar_type());
    require_fields(output, target, loss);
    const at::Tensor mask = mask_of(batch, target);
    if (mask.defined() && norm.has_derivatives) {
      throw DataError(
          loss.cite("name") + ": " + loss.text("name") +
          " has no derivatives next to gaps, which the value mask of the batch marks; use relative_l2 or l2");
    }
    at::Tensor errors = error_norm(without_gaps(output, mask), without_gaps(target, mask), norm, options);
    if (options.weights.has_channels()) errors = errors * options.weights.channels(errors);
    return options.is_sum ? errors.sum() : errors.mean();
  };
  return {.value = value};
}

}  // namespace

Loss make_relative_l2(const Section& loss, const Task& task) { return make_field_loss(loss, task, {}); }

Loss make_relative_l1(const Section& loss, const Task& task) { return make_field_loss(loss, task, {.power = 1}); }

Loss make_h1(const Section& loss, const Task& task) { return make_field_loss(loss, task, {.has_derivatives = true}); }

Loss make_l2(const Section& loss, const Task& task) { return make_field_loss(loss, task, {.is_relative = false}); }

Loss make_h1_absolute(const Section& loss, const Task& task) {
  return make_field_loss(loss, task, {.has_derivatives = true, .is_relative = false});
}

}  // namespace lockstep::models
