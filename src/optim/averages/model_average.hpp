// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/flat_parameters.hpp>
#include <lockstep/optim/rule.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::optim {

/// An average of a model's past weights, kept in addition to them: each rank averages its own parts, and those who
/// share the parameters share it. Integer buffers are never averaged.
///
/// Weights and average can change places, which costs no bits: what was trained is there again after the second time.
/// It costs no memory, except for 16-bit weights: their average is float32, and they are kept in memory of their own
/// while the rounded average is in their place.
class ModelAverage {
 public:
  struct NamedBuffer {
    std::string name;
    at::Tensor tensor;
  };
  /// The model's buffers as they are now: a module may have replaced them.
  using Buffers = std::function<std::vector<NamedBuffer>()>;

  /// @param rule        outlives the average
  /// @param parameters  of floating-point types; outlives the average
  /// Collective over the ranks that share the parameters: allocates their average.
  /// @throws ConfigError  parameters of another type, or no parameter has one of the names
  ModelAverage(const AverageRule& rule, const AverageOptions& options, FlatParameters& parameters, Buffers buffers);

  /// Takes the present weights in: the first time as they are. Not collective; others see it after the next
  /// FlatParameters::write.
  void update();

  const AverageRule& rule() const noexcept { return *rule_; }
  const AverageOptions& options() const noexcept { return options_; }
  std::int64_t updates() const noexcept { return updates_; }  ///< so far, those between two intervals too
  /// Before the first update there is no average: it is whatever the weights are.
  bool has_begun() const noexcept { return updates_ > 0; }

  /// Exchanges weights and average, buffers too where they are averaged. Collective like FlatParameters::write.
  void swap();
  /// The same of this rank's own parts alone, after an exception that others may not know of. Not collective.
  void swap_alone();
  /// Exchanges only the buffers, where they are averaged. Not collective.
  void swap_buffers();

  // The accessors for checkpoints.

  /// The type of the average of a block's parameters.
  DType dtype(std::size_t block) const;
  /// The average of a block's parameters, laid out like it, as in Optimizer::state.
  std::span<std::byte> parameters(std::size_t block);
  /// Whether a parameter is averaged; otherwise its average is not defined.
  bool is_averaged(std::size_t block, std::size_t segment) const { return is_averaged_[block][segment] != 0; }
  /// The averages of this rank's buffers; empty where they are not averaged.
  const std::vector<NamedBuffer>& buffers() const noexcept { return averaged_buffers_; }
  /// Goes on from there: the caller restores the average of the parameters.
  /// @param buffers  averages of buffers, by name; those that are missing begin again
  void resume_at(std::int64_t updates, std::vector<NamedBuffer> buffers);

 private:
  void choose_parameters();
  void update_parameters(double weight);
  void update_buffers(double weight);
  void exchange_parameters();
  void exchange_halves();
  at::Tensor flat_average(std::size_t block, std::size_t segment) const;
  template <class Visit>
  void for_each_own(const Visit& visit) const;
  template <class Visit>
  void visit_own(const Visit& visit);

  const AverageRule* rule_;
  AverageOptions options_;
  FlatParameters* parameters_;
  Buffers buffers_;
  std::int64_t updates_ = 0;
  std::vector<std::shared_ptr<std::byte>> average_;  // average of each block
  std::vector<at::Tensor> kept_;                     // own parts of 16-bit weights, while the average is in their place
  std::vector<std::vector<char>> is_averaged_;       // [block][segment]
  std::vector<NamedBuffer> averaged_buffers_;
};

}  // namespace lockstep::optim
