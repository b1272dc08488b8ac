// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/core/section.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/data/image_store.hpp>
#include <lockstep/data/load_times.hpp>
#include <lockstep/data/sample_errors.hpp>

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::data {

/// Targets with this value are ignored by the loss and the metrics (PyTorch's ignore_index).
inline constexpr std::int64_t kIgnored = -100;

struct TransformRow;

/// A finite, indexed set of samples. All members must be thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  virtual Task task() const = 0;
  /// A batch with the samples of these draws, in this order. The implementation need not set Batch::draws.
  /// @param draws  indices in [0, size())
  /// @throws DataError  a sample cannot be read
  virtual batch::Batch get(std::span<const batch::Draw> draws) const = 0;
  /// The names of the inputs and targets among the values of a batch. By default "data" and "label".
  virtual batch::Roles roles() const { return {}; }
  /// The class of each sample, for samplers that use classes. By default, the classes are read from the targets.
  /// @throws DataError  a sample does not have exactly one class
  virtual std::vector<std::int64_t> labels() const;
  /// Width / height of each sample, for samplers that group by it. By default, the ratio of the sample_shape of the
  /// task.
  /// @throws DataError  samples are not images
  virtual std::vector<double> aspect_ratios() const;
  /// The name of a sample in predictions: the path of its file, for example. By default, it has none.
  virtual std::string sample_name(std::int64_t) const { return ""; }
  /// The times of some of the samples that all threads have loaded until now. By default, no sample is measured.
  virtual LoadTimes load_times() const { return {}; }
  /// A digest of the content, for checkpoints: equal data sets have equal digests, different data sets almost surely
  /// different ones.
  virtual std::uint64_t digest() const = 0;
};

/// The order of the values of a field [C, H, W] in the memory of a batch.
enum class FieldFormat {
  contiguous,
  channels_last,  ///< the channels of each pixel are adjacent
  any             ///< one of these, as the model prefers; `fill` accepts both
};

/// A tensor that every sample has, with a fixed shape and type.
struct Field {
  std::string name;
  std::vector<std::int64_t> shape;  ///< shape for one sample
  at::ScalarType dtype = at::kFloat;
  FieldFormat format = FieldFormat::contiguous;
};

/// A data set that provides single samples; the threads of the loader collate them into batches. Override `sample` or,
/// to avoid a copy of large samples, `layout` and `fill`.
class SampleDataset : public Dataset {
 public:
  /// The values of one sample, each without the batch dimension: tensors, numbers, texts, lists, maps, or
  /// DataContainers with options of collation. All samples have the same names. By default, the values that `fill`
  /// writes.
  /// @throws DataError  it cannot be read
  virtual batch::ValueMap sample(const batch::Draw& draw) const;
  /// The tensors that `fill` writes. By default none = then `sample` provides the samples.
  virtual std::vector<Field> layout() const { return {}; }
  /// The same tensors with the bytes of images instead of their float32 values: a quarter of the memory, which a loader
  /// for a GPU selects. By default none = there are no such bytes.
  virtual std::vector<Field> byte_layout() const { return {}; }
  /// The values of the bytes in uint8 tensors. Required with byte_layout.
  virtual std::shared_ptr<const batch::ByteTables> byte_tables() const { return nullptr; }
  /// The reason why there is no byte_layout, for the log; empty = samples are not images.
  virtual std::string float_reason() const { return ""; }
  /// Writes one sample.
  /// @param row  the tensors of `layout` or `byte_layout`, views of a batch with arbitrary contents; write to them in
  ///             place. Values that are added under other names are collated like the values of `sample`
  /// @throws DataError  it cannot be read
  virtual void fill(const batch::Draw& draw, batch::ValueMap& row) const;
  /// Requests that the system reads the files of a sample in advance. The loader calls it some batches before the
  /// sample is needed. By default, it does nothing.
  virtual void read_ahead(const batch::Draw&) const {}
  /// The position of a sample in warnings, such as the path of its file; empty = the index is enough.
  virtual std::string place(const batch::Draw&) const { return ""; }
  /// @throws DataError  samples cannot be collated; the message states their indices
  batch::Batch get(std::span<const batch::Draw> draws) const final;
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
  requires std::is_invocable_r_v<Result, F&, const Section&, const UsedSplits&> OpenFunction(F&& function)
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
  std::string normalise = {};
};

/// The built-in sources: digits, idx, text, tokens, folder, list, cifar10, cifar100, synthetic.
const std::vector<Source>& builtin_sources();

/// The keys of section `data` for sources of images: transforms, decoding, checks and classes.
KeySpecs image_keys();

/// Facts for the opening of a source, in addition to section `data`.
struct OpenOptions {
  std::uint64_t seed = 0;                                 ///< `run.seed`, for augmentations
  const std::vector<TransformRow>* transforms = nullptr;  ///< null = builtin_transforms()
  bool refuses_unknown_keys = true;  ///< refuse keys of other sources that are not at their default
  bool is_evaluation = false;        ///< images of the training split have the transforms of evaluation, too
  /// Sources of images with class names: the names in the order of a trained model. Its numbers become the targets.
  /// These are names in the data, such as those of folders, see Task::class_ids. Empty = the order of the source.
  std::vector<std::string> class_order = {};
  /// The names of these classes for messages and results, instead of data.class_names. Empty = class_order.
  std::vector<std::string> class_names = {};
  UsedSplits used = {};
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

/// Does what one process per host can do for all of them before they call `open`: lists the files of an image source
/// into `data.cache`, and checks images as `data.check` states. Other sources need no preparation.
/// @throws ConfigError, DataError  as `open`, or an image is damaged
void prepare(const Section& data, const std::vector<Source>& sources = builtin_sources(),
             const OpenOptions& options = {});

/// The keys of section `data`: the common ones and those of every source.
KeySpecs data_keys(const std::vector<Source>& sources = builtin_sources());

}  // namespace lockstep::data
