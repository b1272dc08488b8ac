// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "arrays/array_file.hpp"
#include "data/fields/field_files.hpp"
#include "data/fields/field_windows.hpp"

namespace lockstep::data {

/// A file of inputs and that of its targets, which are often the same.
struct FieldPair {
  FieldFile inputs;
  FieldFile targets;
};

/// Files whose steps follow one another, and the windows in them.
struct FieldSeries {
  std::vector<std::size_t> files;          ///< numbers of pairs, in the order of time
  std::vector<std::int64_t> begins;        ///< the first step of each file, counted from that of the first file
  std::vector<std::int64_t> trajectories;  ///< those of the files that belong to the data set
  std::vector<std::int64_t> starts;        ///< the first step of each window

  std::int64_t samples() const { return std::ssize(trajectories) * std::ssize(starts); }
};

/// The position of a sample in the files.
struct FieldPlace {
  std::size_t file = 0;  ///< number of the pair in which the window begins
  std::int64_t trajectory = 0;
  std::int64_t start = 0;  ///< first step of the window, counted in this file

  bool operator==(const FieldPlace&) const = default;
};

/// The part of an array that a chunk holds.
struct ChunkSize {
  std::int64_t trajectories = 1;
  std::int64_t steps = 1;
};
ChunkSize chunk_size_of(const FieldVariable& variable);

/// Everything that the samples of a split have in common.
struct FieldDescription {
  std::vector<FieldPair> pairs;
  std::vector<FieldSeries> series;
  SampleSpace space;
  WindowRule rule;
  std::vector<float> statics = {};  ///< fields without time, [S, space...]; gaps are NaN
  std::vector<std::string> static_names = {};
  bool fills_gaps = false;  ///< data.gaps = zero; otherwise a gap is an error
  bool has_gap_channel = false;
  std::int64_t classes = 0;  ///< number of classes of a class map; 0 = the targets are numbers
};

/// The windows of arrays. Values of a sample: "data" [T_in * C + S, space...] float32, all channels of the oldest step
/// first; "label" [T_out * C, space...] float32, or [space...] int64 for class maps; "mask", like "label", is false in
/// gaps.
class FieldDataset : public SampleDataset, public SampleNames, public SampleChunks {
 public:
  /// @param files  open files, shared by the splits
  FieldDataset(FieldDescription description, std::shared_ptr<arrays::OpenFiles> files);

  std::int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  Task task() const override;
  SampleLayout layout() const override;
  void fill(const batch::Draw& draw, batch::ValueMap& row) const override;
  std::uint64_t digest() const override { return digest_; }
  std::string sample_name(std::int64_t index) const override;
  /// By the first variable of the inputs, and the first step of the window. Without chunks, each sample is one.
  std::vector<std::int64_t> chunks() const override;
  ChunkBytes chunk_bytes() const override;

  FieldPlace place(std::int64_t index) const;
  const FieldDescription& description() const noexcept { return description_; }

 private:
  bool has_targets() const { return description_.rule.steps_out > 0; }
  std::int64_t input_channels() const;
  std::int64_t target_channels() const;
  std::vector<std::int64_t> shape_with(std::int64_t channels) const;
  /// Reads steps of a window into out[step][channel][point].
  void read_window(const FieldSeries& series, std::int64_t trajectory, const std::vector<std::int64_t>& steps,
                   bool are_targets, float* out) const;

  FieldDescription description_;
  std::shared_ptr<arrays::OpenFiles> files_;
  std::vector<std::int64_t> ends_;  ///< number of samples up to the end of each series
  std::uint64_t digest_ = 0;
};

}  // namespace lockstep::data
