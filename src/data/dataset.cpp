// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/data/dataset.hpp>

#include <algorithm>

#include "batch/collate.hpp"
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
      throw DataError("the samples have no single class each; choose a data.sampler that needs none");
    }
    const auto* values = target.const_data_ptr<std::int64_t>();
    labels.insert(labels.end(), values, values + target.numel());
  }
  return labels;
}

std::vector<double> Dataset::aspect_ratios() const {
  const std::vector<std::int64_t> shape = task().sample_shape;
  if (shape.size() < 2) throw DataError("the samples have no width and height; choose a data.sampler that needs none");
  const double ratio = static_cast<double>(shape.back()) / static_cast<double>(shape[shape.size() - 2]);
  return std::vector<double>(static_cast<std::size_t>(size()), ratio);
}

batch::Batch SampleDataset::get(std::span<const batch::Draw> draws) const {
  std::vector<batch::Value> samples;
  for (const batch::Draw& draw : draws) samples.emplace_back(sample(draw));
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
