// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/data/dataset.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::data {

struct TransformRow;

/// A sample that could not be read and was replaced by another one.
struct BadSample {
  std::string name;    ///< result of ImageStore::name
  std::string reason;  ///< message of the error
};

/// The samples that a run replaces because they cannot be read (data.on_error = replace). Thread-safe.
class SampleErrors {
 public:
  /// @param max  `data.max_errors`: maximum number of different samples
  explicit SampleErrors(std::int64_t max) : max_(max) {}

  /// Records a replaced sample; a sample that is already known is not recorded again.
  /// @throws DataError  there are more than `max` of them
  void add(const BadSample& sample);
  /// The samples that were recorded since the last call, in their order.
  std::vector<BadSample> take_new();
  std::int64_t max() const noexcept { return max_; }

 private:
  std::int64_t max_;
  std::mutex mutex_;
  std::set<std::string> names_;
  std::vector<BadSample> new_;
};

/// The splits of a data source; null = the source does not have this split, or the command does not use it. `train` is
/// required.
struct Splits {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> val = nullptr;
  std::shared_ptr<const Dataset> test = nullptr;
  std::vector<std::string> notes = {};             ///< remarks for the log
  std::shared_ptr<SampleErrors> errors = nullptr;  ///< replaced samples of all splits; null = errors are thrown
};

/// The splits that a command uses, in addition to the training split. Faults of other splits are none of the command.
struct UsedSplits {
  bool val = true;
  bool test = true;
};

/// A function that opens a data source: of section `data`, or of section `data` and the splits that are used. In the
/// latter case, it does not open other splits.
template <class Result>
class OpenFunction {
 public:
  OpenFunction() = default;
  OpenFunction(std::nullptr_t) {}
  template <class F>
  requires(std::is_invocable_r_v<Result, F&, const Section&> && !std::is_same_v<std::remove_cvref_t<F>, OpenFunction>)
      OpenFunction(F&& function) {
    if (!std::function<Result(const Section&)>(function)) return;
    function_ = [function = std::forward<F>(function)](const Section& data, const UsedSplits&) {
      return function(data);
    };
  }
  template <class F>
  requires(std::is_invocable_r_v<Result, F&, const Section&, const UsedSplits&> &&
           !std::is_same_v<std::remove_cvref_t<F>, OpenFunction>) OpenFunction(F&& function)
      : function_(std::forward<F>(function)) {}

  explicit operator bool() const noexcept { return bool(function_); }
  Result operator()(const Section& data, const UsedSplits& used = {}) const { return function_(data, used); }

 private:
  std::function<Result(const Section&, const UsedSplits&)> function_;
};

/// A row of the table of data sources. A program can append rows to engine::Registry::sources.
struct Source {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< keys of section `data`, in addition to the common ones
  /// @throws DataError, ConfigError  not collective: each rank opens the data independently
  OpenFunction<Splits> open = {};
  /// Sources of images: the lines `data.transform` convert the images to tensors. `keys` should contain
  /// image_keys(). A source without `val` and `test` is divided as `data.val_fraction` states. If `open` is given as
  /// well, it is used while the keys of image_keys() have their defaults.
  OpenFunction<ImageSplits> open_images = {};
  /// Sources of images: the line that converts to float32 where data.transform has none. If empty, lines without a
  /// conversion give values in [0, 1], and without any lines the images are normalized as those of ImageNet.
  std::string normalize = {};
};

/// The built-in sources: digits, idx, text, tokens, folder, list, cifar10, cifar100, synthetic, hdf5, npy, fields,
/// arrays.
const std::vector<Source>& builtin_sources();

/// The keys of section `data` for sources of images: transforms, decoding, checks and classes.
KeySpecs image_keys();

/// Facts for the opening of a source, in addition to section `data`.
struct OpenOptions {
  std::uint64_t seed = 0;                                 ///< `run.seed`, for augmentations
  const std::vector<TransformRow>* transforms = nullptr;  ///< null = builtin_transforms()
  bool is_evaluation = false;  ///< images of the training split have the transforms of evaluation, too
  /// Sources of images with class names: the names in the order of a trained model. Its numbers become the targets.
  /// These are names in the data, such as those of folders, see Task::class_ids. Empty = the order of the source.
  std::vector<std::string> class_order = {};
  /// If false, data with other classes than those of class_order keep the order of the source.
  bool requires_class_order = true;
  /// The names of these classes for messages and results, instead of data.class_names. Empty = class_order.
  std::vector<std::string> class_names = {};
  UsedSplits used = {};
  /// Sources of images: check the images as `data.check` states. One process per host can do it for all of them.
  bool checks_images = false;
};

/// Opens the data source that `data.name` selects.
/// @throws ConfigError  the name is unknown (the message lists the known names), or a key is set that belongs to other
///                      sources; also the errors of the source
Splits open(const Section& data, const std::vector<Source>& sources = builtin_sources(),
            const OpenOptions& options = {});

/// Opens the source of images that `data.name` selects, divided into splits, without a pipeline.
/// @throws ConfigError  the source does not provide images; also the errors of the source
ImageSplits open_images(const Section& data, const std::vector<Source>& sources = builtin_sources(),
                        const UsedSplits& used = {});

/// The keys of section `data`: the common ones and those of every source.
KeySpecs data_keys(const std::vector<Source>& sources = builtin_sources());

}  // namespace lockstep::data
