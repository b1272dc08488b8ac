// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/data/image.hpp>

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

/// Targets with this value are ignored by the loss and the metrics (PyTorch's ignore_index).
inline constexpr std::int64_t kIgnored = -100;

/// A finite, indexed set of samples. All members must be thread-safe. A class that knows more can also derive from
/// SampleClasses, AspectRatios, SampleNames, SampleChunks, TimedLoading or SampleFiles.
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
  /// A digest of the content. A run that resumes reports data with another digest as other training data. 64 bits that
  /// change when a sample changes are enough, such as a hash of the samples, or of the paths and sizes of their files.
  virtual std::uint64_t digest() const = 0;
};

/// The class of each sample, known without loading the samples.
class SampleClasses {
 public:
  virtual ~SampleClasses() = default;
  /// @throws DataError  a sample does not have exactly one class
  virtual std::vector<std::int64_t> labels() const = 0;
};

/// Width / height of each sample.
class AspectRatios {
 public:
  virtual ~AspectRatios() = default;
  virtual std::vector<double> aspect_ratios() const = 0;
};

/// The names of samples in predictions.
class SampleNames {
 public:
  virtual ~SampleNames() = default;
  /// The path of the sample's file, for example.
  virtual std::string sample_name(std::int64_t index) const = 0;
};

/// A data set that measures some of its samples.
class TimedLoading {
 public:
  virtual ~TimedLoading() = default;
  /// The times of the measured samples that all threads have loaded until now.
  virtual LoadTimes load_times() const = 0;
};

/// Samples in files, for a SampleDataset.
class SampleFiles {
 public:
  virtual ~SampleFiles() = default;
  /// Requests that the system reads the files of a sample in advance. The loader calls it some batches before the
  /// sample is needed.
  virtual void read_ahead(const batch::Draw& draw) const = 0;
  /// The position of a sample in warnings, such as the path of its file.
  virtual std::string place(const batch::Draw& draw) const = 0;
};

/// Bytes of chunks that were read.
struct ChunkBytes {
  double unpacked = 0;  ///< bytes of whole chunks, once for each time that a chunk was read and unpacked
  double used = 0;      ///< bytes of them that became samples

  ChunkBytes since(const ChunkBytes& before) const { return {unpacked - before.unpacked, used - before.used}; }
};

/// Samples in chunks of files. A chunk is read as a whole.
class SampleChunks {
 public:
  virtual ~SampleChunks() = default;
  /// The number of the chunk of each sample.
  virtual std::vector<std::int64_t> chunks() const = 0;
  /// The bytes that this process has read until now.
  virtual ChunkBytes chunk_bytes() const = 0;
};

/// SampleClasses::labels, or else the classes in the targets of all samples, for samplers that use classes.
/// @throws DataError  a sample does not have exactly one class
std::vector<std::int64_t> labels_of(const Dataset& dataset);
/// AspectRatios::aspect_ratios, or else the ratio of the sample_shape of the task, for samplers that group by it.
/// @throws DataError  samples are not images
std::vector<double> aspect_ratios_of(const Dataset& dataset);
/// SampleNames::sample_name; empty if samples have no names.
std::string sample_name_of(const Dataset& dataset, std::int64_t index);
/// SampleChunks::chunks, for samplers that use chunks.
/// @throws ConfigError  the data set has no chunks
std::vector<std::int64_t> chunks_of(const Dataset& dataset);
/// SampleChunks::chunk_bytes; zeros if the data set has no chunks.
ChunkBytes chunk_bytes_of(const Dataset& dataset);
/// TimedLoading::load_times; zeros if no sample is measured.
LoadTimes load_times_of(const Dataset& dataset);

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

  bool operator==(const Field&) const = default;
};

/// The tensors of the samples of a SampleDataset that writes them in place.
struct SampleLayout {
  std::vector<Field> fields = {};  ///< the tensors that `fill` writes; none = `sample` provides the samples
  /// The same tensors with the bytes of images instead of their float32 values: a quarter of the memory, which a loader
  /// for a GPU selects. None = there are no such bytes.
  std::vector<Field> byte_fields = {};
  /// The values of the bytes in uint8 tensors. Required with byte_fields.
  std::shared_ptr<const batch::ByteTables> byte_tables = nullptr;
  std::string float_reason = {};  ///< reason why there are no byte_fields, for the log; empty = samples are not images
};

/// A data set that provides single samples; the threads of the loader collate them into batches. Override `sample` or,
/// to avoid a copy of large samples, `layout` and `fill`.
class SampleDataset : public Dataset {
 public:
  /// The values of one sample, each without the batch dimension: tensors, numbers, texts, lists, maps, or
  /// DataContainers with options of collation. All samples have the same names. By default, the values that `fill`
  /// writes. In the batch, an integer becomes a tensor [N] int64, a double a tensor [N] float64, and a tensor [...],
  /// also one without dimensions, a tensor [N, ...] of the same type. The model need not read every value: further
  /// numbers and texts, such as a name, appear in predictions.
  /// @throws DataError  it cannot be read
  virtual batch::ValueMap sample(const batch::Draw& draw) const;
  virtual SampleLayout layout() const { return {}; }
  /// Writes one sample.
  /// @param row  the tensors of SampleLayout::fields or byte_fields, views of a batch with arbitrary contents; write to
  ///             them in place. Values that are added under other names are collated like the values of `sample`
  /// @throws DataError  it cannot be read
  virtual void fill(const batch::Draw& draw, batch::ValueMap& row) const;
  /// @throws DataError  samples cannot be collated; the message states their indices
  batch::Batch get(std::span<const batch::Draw> draws) const final;
};

/// A fault of a sample of a batch.
struct SampleFault {
  std::int64_t row = 0;  ///< index of the sample in the batch
  std::string text;
};

struct LoaderOptions {
  int workers = 1;                     ///< threads that load samples in advance; 0 = load in the calling thread
  int prefetch = 4;                    ///< maximum number of batches loaded in advance; >= 1
  std::string name = "the data set";   ///< name of the data set in messages
  bool pins_memory = false;            ///< use page-locked memory, which allows asynchronous copies to a GPU
  bool prefers_bytes = false;          ///< load SampleLayout::byte_fields, if the data set has them
  bool prefers_channels_last = false;  ///< the order of fields of any order
  /// Looks for a faulty sample in each batch as it was loaded, in a thread that loads; it becomes a DataError. Empty =
  /// no check.
  std::function<std::optional<SampleFault>(const batch::Batch& batch)> check = {};
  /// Changes batch k before `next` returns it, in a thread that loads. Empty = no change.
  std::function<batch::Batch(batch::Batch batch, std::int64_t k)> change = {};
  int read_ahead = 2;         ///< SampleFiles::read_ahead is called this number of batches in advance
  double stall_seconds = 60;  ///< time without any sample after which `warn` is called; 0 = never
  std::function<void(const std::string&)> warn = {};  ///< receives warnings, in the thread that calls Loader::next
};

/// Loads a sequence of batches in advance. `plan` alone determines the samples of batch k, so the number of workers
/// affects only the speed.
///
/// For a SampleDataset, all workers fill one batch together, sample by sample; other data sets are loaded batch by
/// batch. The memory of a batch that SampleDataset::fill writes is used again for a later batch when the batch and
/// everything that shares memory with it are gone.
class Loader {
 public:
  /// The samples of batch k.
  using Plan = std::function<std::vector<batch::Draw>(std::int64_t k)>;

  /// @param plan   called for k = first, first + 1, ... by the workers
  /// @param end    the loader provides the batches k in [first, end)
  Loader(std::shared_ptr<const Dataset> dataset, Plan plan, std::int64_t first, std::int64_t end,
         LoaderOptions options);
  ~Loader();  ///< stops and joins the workers; unused batches are discarded
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next batch, in order, with its draws. An exception of the worker is rethrown here: errors of the program and
  /// of Lockstep unchanged; data errors and exceptions of other libraries as a DataError that states the sample.
  /// @throws std::logic_error  the call is beyond `end`
  batch::Batch next();
  /// Total time in seconds that `next` has waited.
  double wait_seconds() const noexcept;
  /// Total time in seconds that all threads together have spent loading samples.
  double work_seconds() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::data
