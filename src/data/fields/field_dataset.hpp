// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrays/array_file.hpp"
#include "data/fields/field_climatology.hpp"
#include "data/fields/field_series.hpp"
#include "data/fields/field_statistics.hpp"
#include "data/source/climatology.hpp"
#include "data/source/measured.hpp"
#include "data/source/rollout.hpp"

namespace lockstep::data {

/// The position of a sample in the files.
struct FieldPlace {
  std::size_t file = 0;  ///< number of the pair in which the window begins
  std::int64_t trajectory = 0;
  std::int64_t start = 0;  ///< first step of the window, counted in this file

  bool operator==(const FieldPlace&) const = default;
};

/// The windows of arrays. Values of a sample: "data" [T_in * C + S, space...] float32, all channels of the oldest step
/// first, then fields without time, masks, positions and cycles of time; "label" [T_out * C, space...] float32, or
/// [space...] int64 for class maps; "mask", like "label", is false in gaps.
class FieldDataset : public SampleDataset,
                     public SampleNames,
                     public SampleChunks,
                     public MeasuredDataset,
                     public RolloutDataset,
                     public ClimatologyDataset {
 public:
  /// @param files  open files, shared by the splits
  /// @throws DataError, ConfigError  given statistics do not fit the channels
  /// @param rollout      see RolloutDataset
  /// @param climatology  see ClimatologyDataset; null = samples have none
  FieldDataset(FieldDescription description, std::shared_ptr<arrays::OpenFiles> files, const RolloutRule& rollout = {},
               std::shared_ptr<const FieldClimatology> climatology = nullptr);

  std::int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  Task task() const override;
  SampleLayout layout() const override;
  void fill(const batch::Draw& draw, batch::ValueMap& row) const override;
  std::uint64_t digest() const override { return digest_; }
  std::string sample_name(std::int64_t index) const override;
  /// Chunks are those of the costliest variable, at the first step. Without chunks, each sample is one.
  std::vector<std::int64_t> chunks() const override;
  ChunkBytes chunk_bytes() const override;

  std::int64_t parts() const override;
  std::int64_t numbers_per_part() const override;
  std::vector<double> measure(std::int64_t part) const override;
  MeasuredTask result(const std::vector<std::vector<double>>& parts) const override;
  std::string cache_path() const override;

  std::shared_ptr<const Dataset> rolled_out(const RolloutRule& rule) const override;
  std::shared_ptr<const Dataset> with_climatology(const Cited<std::string>& choice) const override;

  FieldPlace place(std::int64_t index) const;
  /// The numbers that data.statistics states for the channels, in the form of statistics.json; "" = they are measured.
  std::string stated_statistics() const;
  const FieldDescription& description() const noexcept { return description_; }

 private:
  bool has_targets() const { return description_.rule.steps_out > 0 && !rollout_.is_forecast; }
  /// Whether inputs of later passes have values that no pass predicts.
  bool needs_later_steps() const;
  std::int64_t stored_channels() const;  ///< input channels that are read from files
  std::vector<std::string> input_names() const;
  /// How values are normalized.
  /// @param numbers  of each channel of a step of the inputs, then of the targets if these are others; empty = they are
  ///                 not known yet, and the map changes nothing
  FieldScaling scaling(const std::vector<FieldNumbers>& numbers) const;
  std::vector<FieldNumbers> given() const;
  Task task_with(const std::vector<FieldNumbers>& numbers) const;
  void clear_where_newest_is_missing(const float* input, bool* mask) const;
  /// The value with the inputs of later passes.
  const char* later_name() const { return rollout_.last_target ? "skipped_inputs" : "later_inputs"; }
  std::int64_t target_passes() const { return rollout_.last_target ? 1 : rollout_.passes; }
  /// The windows of all passes as one.
  WindowRule whole_rule() const;
  void fill_input(const FieldSeries& series, std::int64_t trajectory, std::int64_t start, std::int64_t end,
                  float* input) const;
  void fill_target(const FieldSeries& series, std::int64_t trajectory, std::int64_t start, const float* input,
                   batch::ValueMap& row) const;
  void add_cycles(const FieldSeries& series, std::int64_t start, float* out) const;
  std::int64_t target_channels() const;
  std::vector<std::int64_t> shape_with(std::int64_t channels) const;
  FieldDescription description_;
  std::shared_ptr<arrays::OpenFiles> files_;
  RolloutRule rollout_;
  std::shared_ptr<const FieldClimatology> climatology_;
  mutable CheckedSteps checked_;
  std::vector<std::int64_t> ends_;               ///< number of samples up to the end of each series
  std::vector<std::int64_t> inputs_of_targets_;  // see inputs_of_targets
  std::optional<StatedNumbers> given_;
  std::unique_ptr<FieldStatistics> statistics_;  // null = nothing is measured
  std::uint64_t digest_ = 0;
};

}  // namespace lockstep::data
