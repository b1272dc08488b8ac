// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <cstdint>
#include <memory>
#include <string>

#include "engine/evaluation/predictions.hpp"

namespace lockstep::trainer {

struct FieldsFileOptions {
  std::string path;        ///< path of the file
  std::string part;        ///< path of the file while it is written
  std::string cite;        ///< start of messages, see Section::cite
  std::string source;      ///< attribute `source` of the file
  std::int64_t count = 0;  ///< number of samples; >= 1
};

/// Predicted fields as a netCDF-4 file: a variable for each channel of the targets, [samples, steps, space...] float32,
/// with the coordinates and attributes of the input files. All ranks write the samples of their batches to one file,
/// which lies in a folder that they share.
class FieldsFile {
 public:
  /// Creates the file. Collective.
  /// @param task  of the model
  /// @throws ConfigError  on every rank: the data are not fields, or the file cannot be created
  FieldsFile(const mpi::Communicator& world, const data::Dataset& dataset, const Task& task, FieldsFileOptions options);
  ~FieldsFile();
  FieldsFile(const FieldsFile&) = delete;
  FieldsFile& operator=(const FieldsFile&) = delete;

  /// @param given  the batch of these predictions, with successive samples; points whose value `mask` is false are gaps
  /// @throws ConfigError  the file cannot be written
  /// @throws DataError    the predictions have another shape than the fields
  void write(const engine::BatchPredictions& predictions, const batch::Batch& given);
  /// Makes the samples of this rank durable.
  void close();
  /// Writes the rest of the file, after all ranks have closed it. On the root.
  void finish();
  /// Renames the finished file. On the root.
  void publish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
  bool is_root_;
};

}  // namespace lockstep::trainer
