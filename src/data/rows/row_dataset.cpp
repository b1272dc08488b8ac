// SPDX-License-Identifier: BSD-3-Clause
#include "data/rows/row_dataset.hpp"

#include <lockstep/core/error.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "core/text/text.hpp"
#include "data/source/sources.hpp"

namespace lockstep::data {

namespace {

/// Shape of the tensor of a sample; a single number becomes a list.
std::vector<std::int64_t> shape_of_rows(const RowArray& inputs, bool has_last_channels) {
  std::vector<std::int64_t> shape = inputs.row_shape();
  if (shape.empty()) return {1};
  if (has_last_channels) std::ranges::rotate(shape, shape.end() - 1);
  return shape;
}

/// Copies [pixels, channels] to [channels, pixels].
void separate_channels(std::span<const float> in, std::int64_t channels, float* out) {
  const auto count = static_cast<std::size_t>(channels);
  const std::size_t pixels = in.size() / count;
  for (std::size_t c = 0; c < count; ++c) {
    for (std::size_t p = 0; p < pixels; ++p) *out++ = in[p * count + c];
  }
}

}  // namespace

std::int64_t RowPair::chunk_of(std::int64_t index) const {
  const RowArray* const other = targets->array_of_samples();
  const bool is_other = other != nullptr && other->chunk_cost() > inputs->chunk_cost();
  return is_other ? other->chunk_of(index) : inputs->chunk_of(index);
}

float RowPair::weight(std::int64_t index) const {
  float weight = 0;
  weights->read(index, 1, std::span(&weight, 1));
  if (std::isfinite(weight) && weight >= 0) return weight;
  throw DataError(weights->place(index), "the weight is " + number_text(weight) +
                                             ", but weights are finite numbers of at least 0; correct the data");
}

std::uint64_t RowPair::digest(std::uint64_t layout) const {
  const std::uint64_t digest = hash_of({inputs->digest(), targets->digest(), layout});
  return weights ? hash_of({digest, weights->digest()}) : digest;
}

RowDataset::RowDataset(RowPair rows, RowDatasetOptions options)
    : rows_(std::move(rows)),
      options_(std::move(options)),
      shape_(shape_of_rows(*rows_.inputs, options_.has_last_channels)) {}

Task RowDataset::task() const {
  const RowTargets& targets = *rows_.targets;
  Task task{.sample_shape = shape_, .classes = targets.width(), .class_names = options_.class_names};
  if (targets.kind() == TargetKind::label_sets) task.kind = TaskKind::multilabel;
  if (targets.kind() == TargetKind::numbers) task.kind = TaskKind::regression;
  if (targets.kind() == TargetKind::none) task.classes = std::max<std::int64_t>(options_.classes, 1);
  task.has_weights = rows_.weights != nullptr;
  return task;
}

SampleLayout RowDataset::layout() const {
  const TargetKind kind = rows_.targets->kind();
  Field label{.name = "label", .shape = {}, .dtype = at::kLong};
  if (kind == TargetKind::label_sets || kind == TargetKind::numbers) {
    label = {.name = "label", .shape = {rows_.targets->width()}};
  }
  std::vector<Field> fields = {{.name = "data", .shape = shape_}, label};
  if (rows_.weights) fields.push_back({.name = "weight", .shape = {}});
  return {.fields = std::move(fields)};
}

void RowDataset::fill(const batch::Draw& draw, batch::ValueMap& row) const {
  check_indices(std::span(&draw, 1), size());
  const std::int64_t index = options_.range.index(draw.index);
  const RowArray& inputs = *rows_.inputs;
  const auto numbers = static_cast<std::size_t>(inputs.row_numbers());
  auto* const data = row.at("data").as<at::Tensor>().mutable_data_ptr<float>();
  if (options_.has_last_channels) {
    thread_local std::vector<float> values;
    values.resize(numbers);
    inputs.read(index, 1, std::span(values));
    require_finite(values, inputs, index);
    separate_channels(values, shape_.front(), data);
  } else {
    inputs.read(index, 1, std::span(data, numbers));
    require_finite({data, numbers}, inputs, index);
  }
  if (rows_.weights) *row.at("weight").as<at::Tensor>().mutable_data_ptr<float>() = rows_.weight(index);
  const RowTargets& targets = *rows_.targets;
  const at::Tensor label = row.at("label").as<at::Tensor>();
  if (targets.kind() == TargetKind::classes || targets.kind() == TargetKind::none) {
    const bool has_class = targets.kind() == TargetKind::classes;
    *label.mutable_data_ptr<std::int64_t>() = has_class ? targets.label(index) : kIgnored;
  } else {
    targets.read(index, {label.mutable_data_ptr<float>(), static_cast<std::size_t>(targets.width())});
  }
}

std::vector<std::int64_t> RowDataset::labels() const {
  const TargetKind kind = rows_.targets->kind();
  if (kind != TargetKind::classes && kind != TargetKind::none) {
    throw DataError("the samples do not have one class each; choose another data.sampler");
  }
  std::vector<std::int64_t> labels(static_cast<std::size_t>(size()), kIgnored);
  if (kind == TargetKind::none) return labels;
  for (std::int64_t i = 0; i < size(); ++i) {
    labels[static_cast<std::size_t>(i)] = rows_.targets->label(options_.range.index(i));
  }
  return labels;
}

std::string RowDataset::sample_name(std::int64_t index) const {
  return rows_.inputs->name(options_.range.index(index));
}

std::vector<std::int64_t> RowDataset::chunks() const {
  std::vector<std::int64_t> chunks;
  for (std::int64_t i = 0; i < size(); ++i) chunks.push_back(rows_.chunk_of(options_.range.index(i)));
  return chunks;
}

std::uint64_t RowDataset::digest() const {
  return digest_.get([this] {
    const RowRange& range = options_.range;
    const std::uint64_t digest = rows_.digest(options_.has_last_channels ? 1U : 0U);
    if (!range.order) return digest;
    return hash_of(
        {digest, (*range.order)(0), static_cast<std::uint64_t>(range.begin), static_cast<std::uint64_t>(range.size)});
  });
}

}  // namespace lockstep::data
