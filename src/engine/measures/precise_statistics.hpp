// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/model.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

// C channels.
namespace lockstep::models {
class BatchNorm;
}

namespace lockstep::engine {

/// Gives the batch norm layers of a model the statistics of all that passes through them in some forwards, on all ranks
/// together: mean and biased variance of the population, so it does not matter how samples are divided into batches and
/// batches among ranks. Layers in evaluation mode, and those that no forward reached, stay as they are. It does not
/// matter either whether they are synchronized.
class PreciseStatistics {
 public:
  /// @throws ConfigError  a layer is one of torch::nn's, whose input nobody can see
  explicit PreciseStatistics(models::Model& model);
  /// Everything that the layers have learned themselves in forwards is undone, unless finish has come to its end.
  ~PreciseStatistics();
  PreciseStatistics(const PreciseStatistics&) = delete;
  PreciseStatistics& operator=(const PreciseStatistics&) = delete;

  bool is_empty() const noexcept { return layers_.empty(); }  ///< no such layer is training

  /// Looks at one forward of the model, without gradients.
  /// @throws ConfigError  it used a layer twice: its inputs would be of two kinds
  void observe(const std::function<void()>& forward);
  /// Sums over ranks and gives the layers the result. Collective, also for a rank that has observed nothing.
  void finish(mpi::Collectives& collectives);

 private:
  struct Layer {
    std::string name;
    models::BatchNorm* layer = nullptr;
    std::vector<at::Tensor> before;  // running_mean, running_var, num_batches_tracked
    at::Tensor sums;                 // [2 C + 1] float64: of values, of their squares, and how many
    int uses = 0;                    // number of uses in the current forward
  };
  void restore() noexcept;

  std::vector<Layer> layers_;
  std::map<const void*, std::size_t> index_;  // layer -> index in layers_
  bool is_finished_ = false;
};

}  // namespace lockstep::engine
