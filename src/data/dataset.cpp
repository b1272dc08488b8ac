// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/data/source.hpp>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/text/table.hpp"
#include "data/sample_batch.hpp"
#include "data/source/roles.hpp"
#include "data/source/settings.hpp"
#include "data/source/sources.hpp"
#include "data/stores/image_splits.hpp"

namespace lockstep::data {

std::vector<std::int64_t> labels_of(const Dataset& dataset) {
  constexpr std::int64_t kAtOnce = 256;
  const auto* const classes = ability_of<SampleClasses>(dataset);
  // Chosen targets can be other classes.
  if (classes != nullptr && dataset.roles() == without_roles(dataset).roles()) return classes->labels();
  std::vector<std::int64_t> labels;
  for (std::int64_t begin = 0; begin < dataset.size(); begin += kAtOnce) {
    const batch::Batch batch = dataset.get(batch::draws_in_order(begin, std::min(kAtOnce, dataset.size() - begin)));
    const at::Tensor target = batch.target().contiguous();
    if (target.dim() != 1 || target.scalar_type() != at::kLong) {
      throw DataError("the samples do not have one class each; choose another data.sampler");
    }
    const auto* values = target.const_data_ptr<std::int64_t>();
    labels.insert(labels.end(), values, values + target.numel());
  }
  return labels;
}

std::vector<double> aspect_ratios_of(const Dataset& dataset) {
  if (const auto* const ratios = ability_of<AspectRatios>(dataset)) return ratios->aspect_ratios();
  const std::vector<std::int64_t> shape = dataset.task().sample_shape;
  if (shape.size() < 2) throw DataError("the samples do not have a width and height; choose another data.sampler");
  const double ratio = static_cast<double>(shape.back()) / static_cast<double>(shape[shape.size() - 2]);
  return std::vector<double>(static_cast<std::size_t>(dataset.size()), ratio);
}

std::string sample_name_of(const Dataset& dataset, std::int64_t index) {
  const auto* const names = ability_of<SampleNames>(dataset);
  return names == nullptr ? "" : names->sample_name(index);
}

std::vector<std::int64_t> chunks_of(const Dataset& dataset) {
  std::vector<std::int64_t> chunks;
  if (const auto* const own = ability_of<SampleChunks>(dataset)) chunks = own->chunks();
  if (!chunks.empty()) return chunks;
  throw ConfigError(
      "the samples are not in chunks of files, as those of data.name = fields, hdf5 or npy can be; choose another "
      "data.sampler");
}

ChunkBytes chunk_bytes_of(const Dataset& dataset) {
  const auto* const chunks = ability_of<SampleChunks>(dataset);
  return chunks == nullptr ? ChunkBytes{} : chunks->chunk_bytes();
}

LoadTimes load_times_of(const Dataset& dataset) {
  const auto* const timed = ability_of<TimedLoading>(dataset);
  return timed == nullptr ? LoadTimes{} : timed->load_times();
}

batch::ValueMap SampleDataset::sample(const batch::Draw& draw) const {
  const std::vector<Field> fields = layout().fields;
  if (fields.empty()) throw std::logic_error("SampleDataset: override either sample, or layout and fill");
  batch::ValueMap row;
  for (const Field& field : fields) row[field.name] = at::empty(field.shape, field.dtype);
  fill(draw, row);
  return row;
}

void SampleDataset::fill(const batch::Draw&, batch::ValueMap&) const {
  throw std::logic_error("SampleDataset: a class that overrides layout must override fill, too");
}

batch::Batch SampleDataset::get(std::span<const batch::Draw> draws) const {
  SampleBatch batch(*this, draws, layout().fields, nullptr);
  for (std::size_t i = 0; i < draws.size(); ++i) batch.load(i);
  return batch.finish();
}

void SampleErrors::add(const BadSample& sample) {
  const std::scoped_lock lock(mutex_);
  if (!names_.insert(sample.name).second) return;
  new_.push_back(sample);
  if (static_cast<std::int64_t>(names_.size()) > max_) {
    throw DataError("more than data.max_errors = " + std::to_string(max_) +
                    " samples cannot be read; the last one: " + sample.reason);
  }
}

std::vector<BadSample> SampleErrors::take_new() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(new_, {});
}

const std::vector<Source>& builtin_sources() {
  static const std::vector<Source> rows = {digits_source(),    idx_source(),  text_source(),    tokens_source(),
                                           folder_source(),    list_source(), cifar10_source(), cifar100_source(),
                                           synthetic_source(), hdf5_source(), npy_source(),     fields_source(),
                                           arrays_source()};
  return rows;
}

namespace {

const Source& chosen_source(const Section& data, const std::vector<Source>& sources) {
  return find_row(sources, DataSettings::from(data).source, data.cite("name"));
}

/// Whether the samples of a source can be images that run through a pipeline.
bool can_have_pipeline(const Section& data, const Source& source) {
  return source.open_images && (!source.open || reads_arrays(source) || !set_image_keys(data).empty());
}

bool is_unlabeled(const Section& data) { return data.has("unlabeled") && data.boolean("unlabeled"); }

bool reads_folders(const Source& source) {
  return !reads_arrays(source) && std::any_of(source.keys.begin(), source.keys.end(),
                                              [](const KeySpec& key) { return key.name == "data.unlabeled"; });
}

/// Every prediction would be right with one class.
void require_two_classes(const Dataset& train, const Source& source) {
  const Task task = train.task();
  const bool has_classes = task.kind == TaskKind::classification || task.kind == TaskKind::language;
  if (!has_classes || task.classes != 1) return;
  const std::string name = task.class_names.empty() ? "" : " ('" + task.class_names.front() + "')";
  throw DataError("the training data have only one class" + name + ", so that there is nothing to learn; " +
                  (reads_folders(source)
                       ? "check data.path: it can be a folder too high or too low. For images without "
                         "classes, set data.unlabeled=true"
                       : "check the data and the number of classes of data.name = " + source.name));
}

}  // namespace

std::optional<ImageSplits> find_images(const Section& data, const std::vector<Source>& sources,
                                       const UsedSplits& used) {
  const Source& source = chosen_source(data, sources);
  if (!source.open_images) return std::nullopt;
  ImageSplits images = source.open_images(data, used);
  if (!images.train && reads_arrays(source)) return std::nullopt;
  return with_splits(std::move(images), data);
}

ImageSplits open_images(const Section& data, const std::vector<Source>& sources, const UsedSplits& used) {
  std::optional<ImageSplits> images = find_images(data, sources, used);
  if (!images) {
    const Source& source = chosen_source(data, sources);
    std::vector<std::string> names;
    for (const Source& each : sources) {
      if (each.open_images) names.push_back(each.name);
    }
    throw ConfigError(data.cite("name") + ": '" + source.name +
                      "' does not provide image files; choose one of: " + joined(names));
  }
  return std::move(*images);
}

bool opens_images(const Section& data, const std::vector<Source>& sources) {
  return can_have_pipeline(data, chosen_source(data, sources));
}

Splits open(const Section& data, const std::vector<Source>& sources, const OpenOptions& options) {
  return open(data, sources, options, {});
}

Splits open(const Section& data, const std::vector<Source>& sources, const OpenOptions& options,
            const GivenStatistics& statistics) {
  const Source& source = chosen_source(data, sources);
  const ChosenRoles roles = DataSettings::from(data).roles;
  Splits splits;
  std::optional<ImageSplits> images;
  if (can_have_pipeline(data, source)) images = find_images(data, sources, options.used);
  if (images) {
    splits = with_pipelines(*images, data, options, source.normalize, statistics);
    if (options.checks_images) check_images(splits, data);
  } else {
    splits = source.open(data, options.used);
  }
  if (!splits.train) {
    throw ConfigError(data.cite("name") + ": the source '" + source.name + "' returned no training split; set `train`");
  }
  if (!options.is_evaluation && !is_unlabeled(data)) require_two_classes(*splits.train, source);
  for (auto* dataset : {&splits.train, &splits.val, &splits.test}) *dataset = with_roles(*dataset, roles);
  return splits;
}

KeySpecs data_keys(const std::vector<Source>& sources) { return data_keys(sources, builtin_samplers()); }

KeySpecs data_keys(const std::vector<Source>& sources, const std::vector<SamplerRow>& samplers) {
  KeySpecs keys = keys_of_rows(keys_of_rows(DataSettings::keys(sources, samplers), sources, {"data.name"}), samplers,
                               {"data.sampler"});
  // A source of a program can open another one, with the keys of that one.
  for (const Source& source : sources) {
    if (std::ranges::find(builtin_sources(), source.name, &Source::name) != builtin_sources().end()) continue;
    for (KeySpec& key : keys) {
      KeyReaders& readers = key.readers;
      if (readers.selectors == std::vector<std::string>{"data.name"} && !readers.defaults.empty()) {
        readers.defaults.emplace(source.name, readers.defaults.begin()->second);
      }
    }
  }
  return keys;
}

KeySpecs with_image_keys(const KeySpecs& own) {
  KeySpecs keys = image_keys();
  for (const KeySpec& key : own) {
    const auto shared = std::ranges::find(keys, key.name, &KeySpec::name);
    if (shared == keys.end()) {
      keys.push_back(key);
    } else {
      *shared = key;
    }
  }
  return keys;
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
