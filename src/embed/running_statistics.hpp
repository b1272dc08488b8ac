// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/engine/stateful.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep::embed {

/// Count, mean and sum of squared differences from it, of each channel of some values.
class ChannelMoments {
 public:
  explicit ChannelMoments(std::int64_t channels = 0);

  /// @param values  [N, C] or [N, C, space...]
  void add(const at::Tensor& values);
  /// Source: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances"
  /// (1979).
  void add(const ChannelMoments& other);

  double count() const noexcept { return count_; }
  const std::vector<double>& means() const noexcept { return means_; }
  /// The standard deviations; 1 for channels that are constant.
  std::vector<double> deviations() const;

  /// The numbers of the object, for messages and checkpoints.
  std::vector<double> numbers() const;
  static std::size_t size(std::int64_t channels) { return 1 + 2 * static_cast<std::size_t>(channels); }
  static ChannelMoments of(const double* numbers, std::int64_t channels);

 private:
  double count_ = 0;
  std::vector<double> means_;
  std::vector<double> squares_;
};

/// Mean and deviation of the channels of inputs and targets over the samples that a run has seen, with which its model
/// normalizes (buffer.statistics). They are combined lane by lane or, without lanes, rank by rank: with lanes, the
/// result has the same bits on any number of ranks.
class RunningStatistics {
 public:
  struct StatisticsOptions {
    std::int64_t parts = 1;         ///< lanes of this rank, or 1
    std::int64_t all_parts = 1;     ///< those of all ranks
    std::int64_t first = 0;         ///< number of the first part of this rank
    std::int64_t inputs = 0;        ///< channels of the input
    std::int64_t targets = 0;       ///< channels of the target; 0 = targets are not normalized
    std::int64_t frozen_after = 0;  ///< samples after which they stay as they are; 0 = never
  };
  explicit RunningStatistics(const StatisticsOptions& options);

  /// Counts samples of one part.
  void add(std::size_t part, const batch::Batch& samples);
  /// Gives the model the statistics of the samples of all ranks, unless they are frozen. Collective.
  void update(mpi::Collectives& collectives, models::Model& model);

  /// The component of checkpoints.
  /// @param collectives  of all ranks; outlives the component, as this object does
  std::shared_ptr<engine::Stateful> state(std::function<mpi::Collectives&()> collectives);

 private:
  friend class RunningStatisticsState;

  struct PartMoments {
    double samples = 0;
    ChannelMoments inputs;
    ChannelMoments targets;
  };

  std::size_t numbers_of_part() const;
  std::vector<double> gathered(mpi::Collectives& collectives) const;
  PartMoments part_of(const double* numbers) const;

  StatisticsOptions options_;
  std::vector<PartMoments> parts_;
  bool is_frozen_ = false;
};

}  // namespace lockstep::embed
