// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/image_splits.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "core/system/in_threads.hpp"
#include "core/system/resources.hpp"
#include "core/text/text.hpp"
#include "data/source/roles.hpp"
#include "data/source/settings.hpp"
#include "data/stores/image_dataset.hpp"
#include "data/stores/image_settings.hpp"
#include "data/stores/list_text.hpp"
#include "data/stores/store_views.hpp"
#include "log/progress.hpp"

namespace lockstep::data {

namespace {

constexpr std::size_t kNamedClasses = 12;

/// Number and names of the classes.
struct Classes {
  std::int64_t count = 0;
  std::vector<std::string> names;
  std::vector<std::string> ids = {};  ///< names in the data, if they are others
  std::string note = {};              ///< remark for the log; empty = none
};

std::string numbers_text(const std::vector<int>& numbers) {
  std::vector<std::string> words;
  for (const int number : numbers) words.push_back(std::to_string(number));
  return joined(words);
}

/// Masks with one class would be a task that is solved from the beginning.
/// @param values  those of the pixels
void require_two_classes(const std::vector<int>& values) {
  const bool has_ignored = !values.empty() && values.back() == kIgnoredPixel;
  const std::size_t classes = values.size() - (has_ignored ? 1 : 0);
  if (classes > 1) return;
  if (classes == 0) throw DataError("the masks contain no classes, only ignored pixels (255); check the masks");
  const std::string first = std::to_string(values.front());
  if (!has_ignored) {
    throw DataError("the masks contain only class " + first + ", so that there is nothing to learn; check the masks");
  }
  throw DataError("the masks contain only class " + first +
                  " and ignored pixels (255), so that there is nothing to "
                  "learn; if 255 marks a class, set data.mask_values = " +
                  first + ",255");
}

/// The remark about values of masks that leave out classes; empty = there are none.
std::string gaps_text(const std::vector<int>& values, std::int64_t classes) {
  const auto found = std::count_if(values.begin(), values.end(), [](int value) { return value != kIgnoredPixel; });
  if (found == classes) return "";
  return "the masks contain the values " + numbers_text(values) + ": " + std::to_string(classes - found) + " of " +
         std::to_string(classes) + " classes do not occur; data.mask_values can number the values that occur";
}

/// The classes of masks: data.classes, else one for each line of data.class_names or each of data.mask_values, else
/// those that occur.
Classes mask_classes_of(const Section& data, const ImageStore& train, bool is_evaluation) {
  Classes classes{.count = data.integer("classes"), .names = {}};
  const std::string& path = data.text("class_names");
  if (!path.empty()) classes.names = read_class_names(path);
  const auto names = static_cast<std::int64_t>(classes.names.size());
  const auto listed = std::ssize(mask_values(data));
  if (listed == 0 && (classes.count > kIgnoredPixel || names > kIgnoredPixel)) {
    throw ConfigError(data.cite("classes") + ": masks have at most 255 classes, because 255 marks ignored pixels");
  }
  if (listed > 0 && classes.count > 0 && classes.count != listed) {
    throw ConfigError(data.cite("mask_values") + " lists " + std::to_string(listed) +
                      " values, but data.classes = " + std::to_string(classes.count) + "; remove data.classes");
  }
  if (classes.count == 0) classes.count = names > 0 ? names : listed;
  if (classes.count == 0 || (listed == 0 && !is_evaluation)) {
    const std::vector<int> values = values_in_masks(*train.facts().masks, max_image_bytes(data), classes.count > 0,
                                                    data.text("on_error") == "replace");
    if (!is_evaluation) require_two_classes(values);
    if (classes.count == 0) {
      const auto largest = std::find_if(values.rbegin(), values.rend(), [](int v) { return v != kIgnoredPixel; });
      classes.count = largest == values.rend() ? 1 : *largest + 1;
      classes.note = gaps_text(values, classes.count);
    }
  }
  const auto expected = listed > 0 ? listed : classes.count;
  if (names > 0 && names != expected) {
    throw DataError(path, "contains " + std::to_string(names) + " class names, but there are " +
                              std::to_string(expected) + " classes; correct the file");
  }
  return classes;
}

/// The classes that section `data` and the training part state.
/// @throws ConfigError  they contradict each other
Classes classes_of(const Section& data, const ImageStore& train, const OpenOptions& options) {
  const TargetKind targets = train.facts().targets;
  Classes classes{.count = train.facts().classes, .names = train.facts().class_names};
  if (!options.class_order.empty() && !classes.names.empty()) {
    const std::vector<std::string>& names = options.class_names.empty() ? options.class_order : options.class_names;
    if (names != classes.names) classes.ids = std::exchange(classes.names, names);
    return classes;
  }
  const std::int64_t wanted = data.integer("classes");
  if (targets == TargetKind::masks) return mask_classes_of(data, train, options.is_evaluation);
  if (targets == TargetKind::none) classes.count = wanted;
  if (targets == TargetKind::numbers) return {};
  if (wanted > 0 && classes.count != wanted) {
    if (wanted < classes.count) {
      throw ConfigError(data.cite("classes") + " = " + std::to_string(wanted) + ", but the data have " +
                        std::to_string(classes.count) + " classes; set data.classes = 0 or correct it");
    }
    classes.count = wanted;
    classes.names.clear();
  }
  const std::string& path = data.text("class_names");
  if (!path.empty()) classes.ids = std::exchange(classes.names, read_class_names(path));
  const bool counts_names = targets == TargetKind::none && wanted == 0 && !path.empty();
  if (counts_names) classes.count = static_cast<std::int64_t>(classes.names.size());
  if (!classes.names.empty() && static_cast<std::int64_t>(classes.names.size()) != classes.count) {
    throw DataError(path, "contains " + std::to_string(classes.names.size()) + " class names, but there are " +
                              std::to_string(classes.count) + " classes; correct the file");
  }
  return classes;
}

std::string classes_text(const Classes& classes) {
  std::vector<std::string> names = classes.names;
  const bool has_more = names.size() > kNamedClasses;
  if (has_more) names.resize(kNamedClasses);
  return std::to_string(classes.count) + " classes: " + joined(names) + (has_more ? ", ..." : "");
}

std::string statistics_text(const ChannelStatistics& statistics, const std::string& origin) {
  const auto text = [](const std::vector<double>& values) {
    std::vector<std::string> words;
    for (const double value : values) words.push_back(number_text(value, 4));
    return joined(words, ",");
  };
  return "normalize: mean=" + text(statistics.mean) + ",std=" + text(statistics.std) + " (" + origin + ")";
}

PixelOutput pixel_output(const Section& data) {
  const std::string& output = data.text("output");
  return output == "uint8" ? PixelOutput::bytes : output == "float" ? PixelOutput::floats : PixelOutput::either;
}

/// The line for images without one; averages of ImageNet's numbers for gray images.
std::string default_line(const std::string& normalize, int channels) {
  if (!normalize.empty()) return normalize;
  return channels == 1 ? "normalize,mean=0.449,std=0.226" : "normalize";
}

/// Replaces the stores of all splits; splits that are one store stay one.
template <class Change>
void change_stores(ImageSplits& splits, const Change& change) {
  std::map<StorePtr, StorePtr> done = {{nullptr, nullptr}};
  for (StorePtr* const store : {&splits.train, &splits.val, &splits.test}) {
    const auto [changed, is_new] = done.emplace(*store, nullptr);
    if (is_new) changed->second = change(*store);
    *store = changed->second;
  }
}

/// The names by which the classes of the data are found in the order of a trained model: those of the source or, if
/// these do not occur there, those of data.class_names.
std::vector<std::string> names_to_find(const Section& data, const std::vector<std::string>& ids,
                                       const std::vector<std::string>& order) {
  const auto is_there = [&order](const std::string& id) {
    return std::find(order.begin(), order.end(), id) != order.end();
  };
  const std::string& path = data.text("class_names");
  if (path.empty() || std::all_of(ids.begin(), ids.end(), is_there)) return ids;
  std::vector<std::string> names = read_class_names(path);
  return names.size() == ids.size() ? names : ids;
}

/// The same splits with the class numbers of a trained model.
ImageSplits in_class_order(ImageSplits splits, const Section& data, const std::vector<std::string>& order) {
  const std::vector<std::string> ids = splits.train->facts().class_names;
  if (order.empty() || ids.empty()) return splits;
  const std::vector<std::string> names = names_to_find(data, ids, order);
  change_stores(splits, [&](const StorePtr& store) { return with_class_order(store, order, names); });
  return splits;
}

/// Whether the classes of the data get the numbers that they have in options.class_order.
bool uses_class_order(const Section& data, const ImageStore& train, OpenOptions options) {
  const std::vector<std::string> order = std::exchange(options.class_order, {});
  if (order.empty() || options.requires_class_order || train.facts().class_names.empty()) return !order.empty();
  const Classes own = classes_of(data, train, options);
  const auto are_known = [&order](const std::vector<std::string>& names) {
    return !names.empty() && std::all_of(names.begin(), names.end(), [&order](const std::string& name) {
      return std::find(order.begin(), order.end(), name) != order.end();
    });
  };
  return own.names != order && (are_known(own.ids) || are_known(own.names));
}

constexpr std::int64_t kSpread = 17;

void check_one(const ImageDataset& dataset, std::int64_t index) {
  dataset.sample({.index = index, .epoch = 0, .position = index});
}

/// Converts the first image and 16 more, evenly spaced, as training would.
/// @throws DataError  one of them cannot be read
void check_some(const ImageDataset& dataset) {
  const std::int64_t size = dataset.size();
  const std::int64_t count = std::min(kSpread, size);
  for (std::int64_t i = 0; i < count; ++i) {
    check_one(dataset, count == 1 ? 0 : (size - 1) / (count - 1) * i + (size - 1) % (count - 1) * i / (count - 1));
  }
}

/// Converts all images with all processors of this process, with a line of progress.
/// @param name  of the split, for the progress
/// @throws DataError  images cannot be read; the message states their number and the first one
void check_all(const ImageDataset& dataset, const std::string& name) {
  std::atomic<std::int64_t> next = 0;
  std::mutex mutex;
  std::map<std::int64_t, std::string> faults;
  log::ProgressLine progress;
  const int threads = usable_processors();
  in_threads(threads, [&](int thread) {
    for (std::int64_t i = next++; i < dataset.size(); i = next++) {
      try {
        check_one(dataset, i);
      } catch (const DataError& error) {
        const std::scoped_lock lock(mutex);
        faults.emplace(i, error.what());
      }
      if (thread == 0 && i % 64 < threads) {
        progress.show("checking " + name + ": " + std::to_string(i) + " of " + std::to_string(dataset.size()));
      }
    }
  });
  if (faults.empty()) return;
  const std::string& first = faults.begin()->second;
  if (faults.size() == 1) throw DataError(first);
  throw DataError(first + " (the first of " + std::to_string(faults.size()) + " images that cannot be read)");
}

}  // namespace

namespace {

/// Whether the value of a key is its default, wherever it was set.
bool has_default_value(const Section& data, const std::string& key) {
  const KeyValue& value = data.values().at(key);
  const auto& defaults = value.spec.readers.defaults;
  const auto of_source = defaults.find(data.text("name"));
  const std::string& default_value = of_source == defaults.end() ? value.spec.default_value : of_source->second;
  return data.is_default(key) || joined(value.texts) == default_value;
}

}  // namespace

std::vector<std::string> set_image_keys(const Section& data) {
  std::vector<std::string> keys;
  for (const KeySpec& spec : image_keys()) {
    const std::string key = spec.name.substr(data.name().size() + 1);
    if (!data.has(key) || key == "classes" || key == "check") continue;
    const bool is_set = key == "output" ? data.text(key) == "uint8" : !has_default_value(data, key);
    if (is_set) keys.push_back(key);
  }
  return keys;
}

ImageSplits with_splits(ImageSplits splits, const Section& data) {
  if (!splits.train) throw DataError("data.name = " + data.text("name") + " has no training part");
  if (!splits.val && !splits.test && splits.is_one_part) {
    ImageSplits parts =
        divided(splits.train, data.real("val_fraction"), static_cast<std::uint64_t>(data.integer("split_seed")));
    splits.train = std::move(parts.train);
    splits.val = std::move(parts.val);
  }
  const std::string& exclude = data.text("exclude");
  if (exclude.empty()) return splits;
  std::int64_t found = 0;
  change_stores(splits, [&](const StorePtr& store) { return without_listed(store, exclude, found); });
  splits.notes.push_back("data.exclude leaves out " + std::to_string(found) + " images");
  return splits;
}

std::optional<ChannelStatistics> statistics_of(const Dataset& dataset) {
  const auto* const images = ability_of<ImageDataset>(dataset);
  return images == nullptr ? std::nullopt : images->pipeline().options().statistics;
}

std::vector<std::string> transform_of(const Dataset& dataset) {
  const auto* const images = ability_of<ImageDataset>(dataset);
  if (images == nullptr) return {};
  const PipelineOptions& options = images->pipeline().options();
  std::vector<std::string> lines = options.lines;
  if (!options.decodes_exactly) lines.emplace_back("data.decode=fast");
  if (options.applies_orientation) lines.emplace_back("data.exif=apply");
  return lines;
}

Splits with_pipelines(const ImageSplits& given, const Section& data, const OpenOptions& given_options,
                      const std::string& normalize, const GivenStatistics& given_statistics) {
  for (const StorePtr& store : {given.train, given.val, given.test}) {
    if (!store || store->facts().targets != TargetKind::masks || store->facts().masks) continue;
    throw DataError(store->place(0), "has no mask; the source of the images does not provide masks");
  }
  OpenOptions options = given_options;
  if (!uses_class_order(data, *given.train, options)) options.class_order.clear();
  const std::vector<TransformRow>& rows = options.transforms != nullptr ? *options.transforms : builtin_transforms();
  const ImageSplits stores = in_class_order(given, data, options.class_order);
  const Classes classes = classes_of(data, *stores.train, options);
  const int channels = channels_of(data, *stores.train);
  const TransformLines lines = transform_lines(data, rows, default_line(normalize, channels), !normalize.empty());
  Splits splits;
  splits.notes = stores.notes;
  if (data.text("on_error") == "replace") splits.errors = std::make_shared<SampleErrors>(data.integer("max_errors"));
  if (!classes.names.empty()) splits.notes.push_back(classes_text(classes));
  if (!classes.note.empty()) splits.notes.push_back(classes.note);
  std::optional<ChannelStatistics> statistics;
  if (needs_statistics(lines.train) || needs_statistics(lines.val)) {
    statistics = given_statistics.values;
    if (!statistics) {
      statistics = measured_statistics(*stores.train, pipeline_options(data, *stores.train, options.seed, false),
                                       splits.errors != nullptr);
    }
    splits.notes.push_back(statistics_text(*statistics, given_statistics.origin));
  }
  const auto dataset = [&](const StorePtr& store, bool is_training) -> std::shared_ptr<const Dataset> {
    if (!store) return nullptr;
    PipelineOptions pipeline = pipeline_options(data, *store, options.seed, is_training);
    pipeline.lines = is_training ? lines.train : lines.val;
    pipeline.statistics = statistics;
    return std::make_shared<ImageDataset>(store, ImageDataset::ImageDatasetOptions{.pipeline = std::move(pipeline),
                                                                                   .rows = &rows,
                                                                                   .errors = splits.errors,
                                                                                   .classes = classes.count,
                                                                                   .class_names = classes.names,
                                                                                   .class_ids = classes.ids,
                                                                                   .output = pixel_output(data)});
  };
  splits.train = dataset(stores.train, !options.is_evaluation);
  splits.val = dataset(stores.val, false);
  splits.test = stores.test == stores.val ? splits.val : dataset(stores.test, false);
  return splits;
}

void check_images(const Splits& splits, const Section& data) {
  const std::string& check = data.text("check");
  if (check == "off" || splits.errors) return;
  const auto check_split = [&](const std::shared_ptr<const Dataset>& dataset, const std::string& name) {
    const auto* const images = dynamic_cast<const ImageDataset*>(dataset.get());
    if (images == nullptr) return;
    check == "full" ? check_all(*images, name) : check_some(*images);
  };
  check_split(splits.train, "the training part");
  check_split(splits.val, "the validation part");
  if (splits.test != splits.val) check_split(splits.test, "the test part");
}

}  // namespace lockstep::data
