// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::embed {

struct ReplayOptions {
  std::int64_t capacity = 1;  ///< samples; >= 1
  bool is_reservoir = false;  ///< keep a uniform choice among all pushed samples, not the newest
  std::uint64_t seed = 0;     ///< run.seed
  std::uint64_t number = 0;   ///< of the rank or lane: buffers draw and keep independently of one another
};

/// The samples of one rank or lane. What it keeps and draws is a pure function of its options, of the samples pushed so
/// far, and of the step.
class ReplayBuffer {
 public:
  explicit ReplayBuffer(const ReplayOptions& options) : options_(options) {}

  /// Keeps copies of rows of a batch.
  /// @param rows  their numbers, in order
  /// @throws DataError  names, shapes or types differ from those of earlier samples; nothing is kept then
  void push(const batch::Batch& batch, const std::vector<std::int64_t>& rows);

  std::int64_t size() const noexcept { return size_; }      ///< samples that it has
  std::int64_t pushed() const noexcept { return pushed_; }  ///< samples so far

  /// Samples of one step: the first of a permutation of the buffer that is keyed by the step. If more are asked for
  /// than there are, they repeat.
  /// @param count  0 if the buffer is empty
  batch::ValueMap draw(std::int64_t step, std::int64_t count) const;

  /// The kept samples by name, [size, ...], for checkpoints.
  std::map<std::string, at::Tensor> values() const;
  /// Continues with the state of a checkpoint.
  void restore(std::map<std::string, at::Tensor> values, std::int64_t pushed);

 private:
  std::int64_t next_place() const;
  void require_same_form(const batch::Batch& batch) const;
  void reserve(const batch::Batch& batch, std::int64_t rows);

  ReplayOptions options_;
  std::map<std::string, at::Tensor> memory_;  // [allocated rows, ...]
  std::int64_t size_ = 0;
  std::int64_t pushed_ = 0;
};

}  // namespace lockstep::embed
