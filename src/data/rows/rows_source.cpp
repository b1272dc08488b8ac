// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/random/random.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "core/text/text.hpp"
#include "data/rows/row_dataset.hpp"
#include "data/rows/row_files.hpp"
#include "data/rows/row_images.hpp"
#include "data/source/settings.hpp"
#include "data/source/sources.hpp"
#include "data/stores/image_splits.hpp"
#include "data/stores/list_text.hpp"

namespace lockstep::data {

namespace {

constexpr double kSampleMiB = 1 << 20;
const std::string kMarkOfArrays = "data.input_array";  // a key that only sources of arrays have

/// The inputs and targets of a split.
struct RowSplit {
  RowPair rows;
  std::vector<std::string> class_names;  ///< those of the file; empty = the classes have none
};

/// Opens the arrays of a configuration.
class RowOpener {
 public:
  RowOpener(const Section& data, ArrayFormat format)
      : data_(data),
        files_(std::make_shared<arrays::OpenFiles>(static_cast<std::size_t>(data.integer("open_files")))),
        parts_(find_rows(data, format, *files_)),
        train_inputs_(std::make_shared<RowArray>(files_, parts_.train.inputs)),
        axes_(axes_of(*train_inputs_)) {}

  /// Whether the samples are images, which run through a pipeline.
  bool has_images() const noexcept { return axes_.has_value(); }

  ImageSplits open_images(const UsedSplits& used) const {
    const RowSplit train = open_train();
    require_image_size();
    const auto store = [&](const RowSplit& split) -> std::shared_ptr<const ImageStore> {
      const auto axes = axes_of(*split.rows.inputs);
      if (!axes) throw_other_inputs(*split.rows.inputs);
      return std::make_shared<RowImages>(split.rows, *axes, train.class_names);
    };
    ImageSplits splits{.train = store(train), .notes = notes(*train.rows.inputs), .is_one_part = is_one_part()};
    if (axes_->shape.channels == 4) {
      splits.notes.push_back(train.rows.inputs->first_place() +
                             " has 4 channels, of which the last one (alpha) is not used");
    }
    if (uses_val(used)) splits.val = store(open_other(*parts_.val, train));
    if (uses_test(used)) splits.test = store(open_other(*parts_.test, train));
    if (parts_.has_test_as_val && used.val) splits.val = splits.test;
    return splits;
  }

  Splits open_rows(const UsedSplits& used) const {
    refuse_image_keys();
    require_sample_size();
    const RowSplit train = open_train();
    const KnownClasses known = classes();
    const bool has_key = !data_.text("class_names").empty();
    const auto dataset = [&](const RowSplit& split, const RowRange& range) {
      return std::make_shared<const RowDataset>(
          split.rows, RowDataset::RowDatasetOptions{.range = range,
                                                    .class_names = has_key ? known.names : train.class_names,
                                                    .classes = known.count,
                                                    .has_last_channels = data_.text("layout") == "nhwc"});
    };
    const auto all = [](const RowSplit& split) { return RowRange{.size = split.rows.inputs->size()}; };
    Splits splits;
    splits.notes = notes(*train.rows.inputs);
    if (is_one_part()) {
      const auto [kept, held_out] = divided_rows(train.rows.inputs->size());
      splits.train = dataset(train, kept);
      if (held_out.size > 0 && used.val) splits.val = dataset(train, held_out);
      return splits;
    }
    splits.train = dataset(train, all(train));
    const auto other = [&](const RowPlaces& places) {
      const RowSplit split = open_other(places, train);
      if (axes_of(*split.rows.inputs) || split.rows.inputs->row_shape() != train.rows.inputs->row_shape()) {
        throw_other_inputs(*split.rows.inputs);
      }
      return dataset(split, all(split));
    };
    if (uses_val(used)) splits.val = other(*parts_.val);
    if (uses_test(used)) splits.test = other(*parts_.test);
    if (parts_.has_test_as_val && used.val) splits.val = splits.test;
    return splits;
  }

 private:
  /// The number of classes that is known before the targets are read, and their names.
  struct KnownClasses {
    std::int64_t count = 0;
    std::string origin;
    std::vector<std::string> names = {};
  };

  bool is_one_part() const { return !parts_.val && !parts_.test; }
  bool uses_val(const UsedSplits& used) const { return parts_.val && used.val; }
  bool uses_test(const UsedSplits& used) const {
    return parts_.test && (used.test || (parts_.has_test_as_val && used.val));
  }

  std::optional<ImageAxes> axes_of(const RowArray& inputs) const {
    return image_axes(inputs, data_.text("layout"), data_.cite("layout"));
  }

  KnownClasses classes() const {
    const std::string& path = data_.text("class_names");
    KnownClasses known;
    if (!path.empty()) {
      known.names = read_class_names(path);
      known.origin = std::to_string(known.names.size()) + " lines of data.class_names";
    } else if (!parts_.train.class_names.empty()) {
      known.names = parts_.train.class_names;
      known.origin = std::to_string(known.names.size()) + " names in 'class_names'";
    }
    known.count = std::ssize(known.names);
    const std::int64_t wanted = data_.integer("classes");
    if (wanted == 0 || wanted == known.count) return known;
    if (!path.empty()) {
      throw DataError(path, "contains " + std::to_string(known.count) +
                                " class names, but data.classes = " + std::to_string(wanted) + "; correct one of them");
    }
    return {.count = wanted, .origin = "data.classes = " + std::to_string(wanted)};
  }

  TargetRule rule() const {
    const KnownClasses known = classes();
    const std::string& kind = data_.text("target_kind");
    using enum TargetRule::TargetNumbers;
    if (kind == "real") return {.numbers = real};
    return {.numbers = kind == "class" ? TargetRule::TargetNumbers::classes : automatic,
            .classes = known.count,
            .classes_origin = known.origin};
  }

  RowSplit open_split(std::shared_ptr<const RowArray> inputs, const RowPlaces& places, const RowTargets* train) const {
    std::shared_ptr<const RowArray> targets;
    if (!places.targets.empty()) {
      targets = std::make_shared<RowArray>(files_, places.targets);
      require_same_sizes(*inputs, *targets, places.inputs, places.targets);
    }
    std::shared_ptr<const RowArray> weights;
    if (!places.weights.empty()) {
      weights = std::make_shared<RowArray>(files_, places.weights);
      require_same_sizes(*inputs, *weights, places.inputs, places.weights);
      require_one_number(*weights);
    }
    return {.rows = {.inputs = std::move(inputs),
                     .targets = std::make_shared<RowTargets>(std::move(targets), rule(), train),
                     .weights = std::move(weights)},
            .class_names = {}};
  }

  RowSplit open_train() const {
    RowSplit train = open_split(train_inputs_, parts_.train, nullptr);
    const RowTargets& targets = *train.rows.targets;
    const bool has_classes = targets.kind() == TargetKind::classes || targets.kind() == TargetKind::label_sets;
    if (has_classes && std::ssize(parts_.train.class_names) == targets.width()) {
      train.class_names = parts_.train.class_names;
    }
    return train;
  }

  RowSplit open_other(const RowPlaces& places, const RowSplit& train) const {
    return open_split(std::make_shared<RowArray>(files_, places.inputs), places, train.rows.targets.get());
  }

  void require_one_number(const RowArray& weights) const {
    weights.require_written();
    if (weights.row_numbers() == 1) return;
    std::vector<std::int64_t> shape = weights.row_shape();
    shape.insert(shape.begin(), weights.size());
    throw DataError(weights.first_place(), "has the shape " + shape_text(shape) + ", but " +
                                               data_.cite("weight_array") + " needs one number per sample");
  }

  static void require_same_sizes(const RowArray& inputs, const RowArray& others,
                                 const std::vector<ArrayPlace>& input_places,
                                 const std::vector<ArrayPlace>& other_places) {
    const std::vector<std::int64_t> ins = inputs.sizes();
    const std::vector<std::int64_t> outs = others.sizes();
    for (std::size_t i = 0; i < ins.size(); ++i) {
      if (ins[i] == outs[i]) continue;
      const auto name = [](const ArrayPlace& place) {
        return place.array.empty() ? place.file : "'" + utf8_text(place.array) + "'";
      };
      const std::string& array = input_places[i].array;
      throw DataError(input_places[i].file, (array.empty() ? "" : name(input_places[i]) + " ") + "has " +
                                                std::to_string(ins[i]) + " samples, but " + name(other_places[i]) +
                                                " has " + std::to_string(outs[i]) + "; both must have the same number");
    }
  }

  [[noreturn]] void throw_other_inputs(const RowArray& inputs) const {
    const auto text = [](const RowArray& array) {
      return arrays::name_of(array.type()) + " samples of the shape " + shape_text(array.row_shape());
    };
    throw DataError(inputs.first_place(), "has " + text(inputs) + ", but the training part has " +
                                              text(*train_inputs_) + "; the parts must agree");
  }

  void require_image_size() const {
    const PixelShape& shape = axes_->shape;
    const double bytes = 3.0 * shape.height * shape.width;
    if (bytes <= static_cast<double>(max_image_bytes(data_))) return;
    throw DataError(train_inputs_->first_place(), "has images of " + std::to_string(shape.height) + " x " +
                                                      std::to_string(shape.width) +
                                                      " pixels, more than data.max_image_mb allows");
  }

  void require_sample_size() const {
    const double bytes = static_cast<double>(train_inputs_->row_numbers()) *
                         static_cast<double>(train_inputs_->type().bytes + sizeof(float));
    if (bytes <= data_.real("max_sample_mb") * kSampleMiB) return;
    throw DataError(train_inputs_->first_place(), "a sample needs " + number_text(bytes / kSampleMiB, 4) +
                                                      " MiB of memory while it is read, more than data.max_sample_mb");
  }

  /// Keys of images have no effect on other inputs.
  void refuse_image_keys() const {
    std::vector<std::string> keys = set_image_keys(data_);
    if (data_.text("check") == "full") keys.emplace_back("check");
    for (const std::string& key : keys) {
      if (key == "val_fraction" || key == "split_seed" || key == "class_names") continue;
      throw ConfigError(data_.cite(key) + " is for images, but " + train_inputs_->first_place() + " has " +
                        arrays::name_of(train_inputs_->type()) + " numbers of the shape " +
                        shape_text(train_inputs_->row_shape()) +
                        " per sample; remove the key, or store images as uint8 numbers");
    }
  }

  std::vector<std::string> notes(const RowArray& inputs) const {
    std::vector<std::string> notes;
    if (parts_.has_test_as_val) {
      notes.push_back(data_.text("path") + ": there is no validation part, so that test is used for it");
    }
    if (const std::string note = inputs.chunk_note(); !note.empty()) notes.push_back(note);
    return notes;
  }

  /// The ranges of training and validation by data.val_fraction.
  std::pair<RowRange, RowRange> divided_rows(std::int64_t size) const {
    const auto val = static_cast<std::int64_t>(std::floor(static_cast<double>(size) * data_.real("val_fraction")));
    if (val == 0) return {RowRange{.size = size}, RowRange{}};
    if (val == size) throw ConfigError(data_.cite("val_fraction") + ": no training samples remain; lower it");
    const random::Permutation order(static_cast<std::uint64_t>(size),
                                    static_cast<std::uint64_t>(data_.integer("split_seed")));
    return {RowRange{.begin = 0, .size = size - val, .order = order},
            RowRange{.begin = size - val, .size = val, .order = order}};
  }

  const Section& data_;
  std::shared_ptr<arrays::OpenFiles> files_;
  RowParts parts_;
  std::shared_ptr<const RowArray> train_inputs_;
  std::optional<ImageAxes> axes_;
};

Source array_source(const std::string& name, const std::string& help, ArrayFormat format) {
  using namespace lockstep::keys;
  const KeySpecs own = {
      val_path_key(),
      text("data.test_path", "", "Files of the test part, like data.path; empty = see data.path"),
      text(kMarkOfArrays, "",
           "hdf5, npy: array of the inputs, such as data/x. If empty, the first one of images, data, X, x, features, "
           "inputs and image that has targets"),
      text("data.target_array", "",
           "hdf5, npy: array of the targets. If empty, that of data.input_array: labels, label, y or targets"),
      text("data.weight_array", "",
           "hdf5, npy: array with the weight of each sample in the loss, a number >= 0. If empty, all weigh the same"),
      choice(
          "data.target_kind", "auto",
          "Targets are classes (class) or numbers (real). auto = classes if they are integers, one per sample, or if "
          "their number is known; bytes of 0 and 1 in several columns mark the classes of a sample",
          {"auto", "real", "class"}),
      text("data.layout", "",
           "hdf5, npy: order of the axes of images, nhwc (channels last) or nchw. If empty, that of the axis with 1, 3 "
           "or 4 channels; with nhwc, numbers of other types become [C, H, W], too"),
      unlabeled_key(),
      expert(real_above("data.max_sample_mb", 0, 1e9, "4096",
                        "Largest sample in MiB (1048576 bytes); larger ones are an error")),
      expert(integer("data.open_files", "64", "Files that a rank keeps open", 1, 1 << 16)),
  };
  Source source{.name = name, .help = help, .keys = with_image_keys(own)};
  source.open = OpenFunction<Splits>(
      [format](const Section& data, const UsedSplits& used) { return RowOpener(data, format).open_rows(used); });
  source.open_images = OpenFunction<ImageSplits>([format](const Section& data, const UsedSplits& used) {
    const RowOpener opener(data, format);
    return opener.has_images() ? opener.open_images(used) : ImageSplits{};
  });
  return source;
}

}  // namespace

bool reads_arrays(const Source& source) {
  return source.open && source.open_images &&
         std::ranges::find(source.keys, kMarkOfArrays, &KeySpec::name) != source.keys.end();
}

Source hdf5_source() {
  return array_source("hdf5",
                      "Samples in arrays of HDF5 files: data.path is a file, a pattern or a folder. uint8 images with "
                      "data.transform, or numbers of any type and shape",
                      ArrayFormat::hdf5);
}

Source npy_source() {
  return array_source("npy",
                      "Samples in arrays of NumPy: data.path is a folder with x.npy and y.npy, or an npz file. uint8 "
                      "images with data.transform, or numbers of any type and shape",
                      ArrayFormat::npy);
}

}  // namespace lockstep::data
