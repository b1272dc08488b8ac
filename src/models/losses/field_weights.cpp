// SPDX-License-Identifier: BSD-3-Clause
#include "models/losses/field_weights.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <torch/types.h>

#include <vector>

#include "batch/byte_values.hpp"
#include "core/numbers/latitudes.hpp"
#include "models/losses/loss_rows.hpp"

namespace lockstep::models {

namespace {

constexpr const char* kMaskKey = "mask";
constexpr const char* kWeightKey = "weight";

/// `numbers` as weights along a dimension of `like`.
at::Tensor along(const at::Tensor& numbers, std::int64_t dim, const at::Tensor& like) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(like.dim()), 1);
  shape[static_cast<std::size_t>(dim)] = numbers.numel();
  return batch::kept_on(numbers, like.device()).to(like.scalar_type()).view(shape);
}

}  // namespace

KeySpecs field_weight_keys() {
  return {area_key("loss.area"),
          keys::text("loss.channel_weights", "",
                     "Factor of each channel of fields: a comma-separated list, or a text file of numbers; empty = 1 "
                     "for all")};
}

FieldWeights FieldWeights::from(const Section& loss, const Task& task) {
  FieldWeights weights;
  weights.has_samples_ = task.has_weights;
  if (loss.has("area")) {
    if (const auto rows = row_weights(loss.text("area"), task.fields, loss.cite("area"))) {
      weights.axis_ = rows->axis;
      weights.rows_ = torch::tensor(rows->weights, at::kDouble);
      if (rows->rule == AreaRule::half_rows) {
        log::info(
            "loss.area: the latitudes are those of a region, so its outermost rows reach half a row outwards; "
            "caps extends them to the poles");
      }
    }
  }
  if (loss.has("channel_weights") && !loss.text("channel_weights").empty()) {
    const std::vector<double> factors = loss_factors(loss, "channel_weights");
    const std::size_t channels = task.fields.channels.size();
    const bool repeats = factors.size() > 1 && channels % factors.size() == 0;
    if (channels > 0 && factors.size() != channels && !repeats) {
      throw ConfigError(loss.cite("channel_weights") + ": " + std::to_string(factors.size()) +
                        " numbers are given for " + std::to_string(channels) + " channels; give one for each channel");
    }
    weights.channels_ = torch::tensor(factors, at::kDouble);
  }
  return weights;
}

at::Tensor FieldWeights::area(const at::Tensor& fields) const {
  if (!rows_.defined()) return {};
  const auto dim = static_cast<std::int64_t>(axis_) + 2;
  if (fields.dim() <= dim || fields.size(dim) != rows_.numel()) {
    throw DataError("loss.area: fields of shape " + batch::shape_text(fields) + " have no axis of " +
                    std::to_string(rows_.numel()) + " latitudes at dimension " + std::to_string(dim) + "; use false");
  }
  return along(rows_, dim, fields);
}

at::Tensor FieldWeights::channels(const at::Tensor& values) const {
  if (!channels_.defined()) return {};
  const std::int64_t factors = channels_.numel();
  if (values.dim() < 2 || values.size(1) % factors != 0) {
    throw DataError("loss.channel_weights: " + std::to_string(factors) + " numbers are given for fields of shape " +
                    batch::shape_text(values) + "; give one for each channel");
  }
  return along(channels_.repeat({values.size(1) / factors}), 1, values);
}

at::Tensor FieldWeights::samples(const batch::Batch& batch, const at::Tensor& values) const {
  return has_samples_ ? sample_weights(batch, values) : at::Tensor();
}

at::Tensor sample_weights(const batch::Batch& batch, const at::Tensor& like) {
  const at::Tensor& weights = batch.tensor(kWeightKey);
  if (weights.dim() != 1 || like.dim() < 1 || weights.size(0) != like.size(0)) {
    throw DataError("the value weight of the batch has the shape " + batch::shape_text(weights) +
                    ", but one number is needed for each of the samples of the shape " + batch::shape_text(like));
  }
  std::vector<std::int64_t> shape(static_cast<std::size_t>(like.dim()), 1);
  shape.front() = weights.size(0);
  return weights.to(like.device(), like.scalar_type()).view(shape);
}

at::Tensor mask_of(const batch::Batch& batch, const at::Tensor& target) {
  if (!batch.has(kMaskKey) || batch.target_key() == kMaskKey || !batch.at(kMaskKey).is<at::Tensor>()) return {};
  const at::Tensor& mask = batch.tensor(kMaskKey);
  bool fits = mask.dim() == target.dim() && mask.dim() > 0 && mask.size(0) == target.size(0);
  for (std::int64_t i = 1; fits && i < mask.dim(); ++i) fits = mask.size(i) == 1 || mask.size(i) == target.size(i);
  if (fits) return mask.to(target.device()).ne(0).expand_as(target);
  throw DataError("the value mask of the batch has the shape " + batch::shape_text(mask) + ", the targets " +
                  batch::shape_text(target) + "; a mask has the sizes of the targets, or 1 for channels and space");
}

at::Tensor without_gaps(const at::Tensor& values, const at::Tensor& mask) {
  return mask.defined() ? at::where(mask, values, at::zeros({}, values.options())) : values;
}

}  // namespace lockstep::models
