// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/data/dataset.hpp>

#include <algorithm>
#include <numeric>

#include "core/table.hpp"
#include "data/settings.hpp"
#include "data/sources.hpp"

namespace lockstep::data {

std::vector<std::int64_t> Dataset::labels() const {
  constexpr std::int64_t kAtOnce = 256;
  std::vector<std::int64_t> labels;
  for (std::int64_t begin = 0; begin < size(); begin += kAtOnce) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(kAtOnce, size() - begin)));
    std::iota(indices.begin(), indices.end(), begin);
    const at::Tensor target = get(indices).target.contiguous();
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

const std::vector<Source>& builtin_sources() {
  static const std::vector<Source> rows = {digits_source(), idx_source(), text_source(), tokens_source()};
  return rows;
}

Splits open(const Section& data, const std::vector<Source>& sources) {
  const DataSettings settings = DataSettings::from(data);
  const Splits splits = find_row(sources, settings.source, data.cite("name")).open(data);
  try {
    return {.train = keyed(splits.train, settings.sample_keys), .test = keyed(splits.test, settings.sample_keys)};
  } catch (const ConfigError& error) {
    throw ConfigError(std::string("data.input_keys, data.target_key: ") + error.what());
  }
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

void check_indices(std::span<const std::int64_t> indices, std::int64_t size) {
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= size) {
      throw std::out_of_range("sample " + std::to_string(index) + " of a data set of " + std::to_string(size));
    }
  }
}

}  // namespace lockstep::data
