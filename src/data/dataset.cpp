// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/data/dataset.hpp>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <new>
#include <optional>
#include <stdexcept>

#include "batch/collate.hpp"
#include "core/message.hpp"
#include "core/table.hpp"
#include "data/roles.hpp"
#include "data/settings.hpp"
#include "data/sources.hpp"

namespace lockstep::data {

std::vector<std::int64_t> Dataset::labels() const {
  constexpr std::int64_t kAtOnce = 256;
  std::vector<std::int64_t> labels;
  for (std::int64_t begin = 0; begin < size(); begin += kAtOnce) {
    const batch::Batch batch = get(batch::draws_in_order(begin, std::min(kAtOnce, size() - begin)));
    const at::Tensor target = batch.target().contiguous();
    if (target.dim() != 1 || target.scalar_type() != at::kLong) {
      throw DataError("the samples do not have one class each; choose another data.sampler");
    }
    const auto* values = target.const_data_ptr<std::int64_t>();
    labels.insert(labels.end(), values, values + target.numel());
  }
  return labels;
}

std::vector<double> Dataset::aspect_ratios() const {
  const std::vector<std::int64_t> shape = task().sample_shape;
  if (shape.size() < 2) throw DataError("the samples do not have a width and height; choose another data.sampler");
  const double ratio = static_cast<double>(shape.back()) / static_cast<double>(shape[shape.size() - 2]);
  return std::vector<double>(static_cast<std::size_t>(size()), ratio);
}

namespace {

/// What `call` returns. Whatever a user's code throws is a fault of the data.
template <class Call>
auto as_data_error(const Call& call) {
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw DataError(message_of(error));
  }
}

/// Uninitialized tensors of a layout, for `count` samples, or without that dimension for one.
batch::ValueMap tensors_of(const std::vector<Field>& layout, std::optional<std::int64_t> count) {
  batch::ValueMap tensors;
  for (const Field& field : layout) {
    std::vector<std::int64_t> shape = field.shape;
    if (count) shape.insert(shape.begin(), *count);
    tensors[field.name] = at::empty(shape, field.dtype);
  }
  return tensors;
}

/// Takes the layout's tensors out of a row again, which must be the ones that were to be written.
void take_fields(batch::ValueMap& row, const batch::ValueMap& given) {
  for (const auto& [name, tensor] : given) {
    const auto found = row.extract(name);
    const bool is_given =
        found && found.mapped().is<at::Tensor>() && found.mapped().as<at::Tensor>().is_same(tensor.as<at::Tensor>());
    if (!is_given) throw DataError("fill must write to the tensor '" + name + "' that it receives, not replace it");
  }
}

batch::Batch filled(const SampleDataset& dataset, const std::vector<Field>& layout,
                    std::span<const batch::Draw> draws) {
  batch::ValueMap whole = tensors_of(layout, std::ssize(draws));
  std::vector<batch::Value> others;
  for (std::size_t i = 0; i < draws.size(); ++i) {
    batch::ValueMap given;
    for (const auto& [name, tensor] : whole) {
      given[name] = tensor.as<at::Tensor>().select(0, static_cast<std::int64_t>(i));
    }
    batch::ValueMap row = given;
    as_data_error([&] { dataset.fill(draws[i], row); });
    take_fields(row, given);
    others.emplace_back(std::move(row));
  }
  const bool has_others = std::any_of(others.begin(), others.end(),
                                      [](const batch::Value& row) { return !row.as<batch::ValueMap>().empty(); });
  batch::Batch batch = has_others ? batch::collated(others, draws) : batch::Batch({}, std::ssize(draws));
  for (auto& [name, tensor] : whole) batch.set(name, std::move(tensor));
  return batch;
}

}  // namespace

batch::ValueMap SampleDataset::sample(const batch::Draw& draw) const {
  const std::vector<Field> fields = layout();
  if (fields.empty()) throw std::logic_error("SampleDataset: override either sample, or layout and fill");
  batch::ValueMap row = tensors_of(fields, std::nullopt);
  fill(draw, row);
  return row;
}

void SampleDataset::fill(const batch::Draw&, batch::ValueMap&) const {
  throw std::logic_error("SampleDataset: a class that overrides layout must override fill, too");
}

batch::Batch SampleDataset::get(std::span<const batch::Draw> draws) const {
  const std::vector<Field> fields = layout();
  if (!fields.empty()) return filled(*this, fields, draws);
  std::vector<batch::Value> samples;
  for (const batch::Draw& draw : draws) samples.emplace_back(as_data_error([&] { return sample(draw); }));
  return batch::collated(samples, draws);
}

const std::vector<Source>& builtin_sources() {
  static const std::vector<Source> rows = {digits_source(), idx_source(), text_source(), tokens_source()};
  return rows;
}

Splits open(const Section& data, const std::vector<Source>& sources) {
  const DataSettings settings = DataSettings::from(data);
  const Splits splits = find_row(sources, settings.source, data.cite("name")).open(data);
  return {.train = with_roles(splits.train, settings.roles),
          .val = with_roles(splits.val, settings.roles),
          .test = with_roles(splits.test, settings.roles)};
}

KeySpecs data_keys(const std::vector<Source>& sources) { return data_keys(sources, builtin_samplers()); }

KeySpecs data_keys(const std::vector<Source>& sources, const std::vector<SamplerRow>& samplers) {
  return keys_of_rows(keys_of_rows(DataSettings::keys(sources, samplers), sources), samplers);
}

const std::string& required_path(const Section& data, const std::string& wanted) {
  const std::string& path = data.text("path");
  if (path.empty()) throw ConfigError("data.path is not set; data.name = " + data.text("name") + " needs " + wanted);
  return path;
}

void check_indices(std::span<const batch::Draw> draws, std::int64_t size) {
  for (const batch::Draw& draw : draws) {
    if (draw.index < 0 || draw.index >= size) {
      throw std::out_of_range("sample " + std::to_string(draw.index) + " of a data set of " + std::to_string(size));
    }
  }
}

}  // namespace lockstep::data
