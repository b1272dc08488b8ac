// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::data {

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
  bool prefers_bytes = false;          ///< load SampleDataset::byte_layout, if the data set has one
  bool prefers_channels_last = false;  ///< the order of fields of any order
  /// Looks for a faulty sample in each batch as it was loaded, in a thread that loads; it becomes a DataError. Empty =
  /// no check.
  std::function<std::optional<SampleFault>(const batch::Batch& batch)> check = {};
  /// Changes batch k before `next` returns it, in a thread that loads. Empty = no change.
  std::function<batch::Batch(batch::Batch batch, std::int64_t k)> change = {};
  int read_ahead = 2;         ///< SampleDataset::read_ahead is called this number of batches in advance
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
