// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/optim_wrapper.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::optim {

/// Several optimizers of one training, by name, for example of a generator and a discriminator. Each performs its own
/// steps; this class contains the common operations, in alphabetical order of names.
///
/// As a BaseOptimWrapper, it updates all parameters by one loss: one backward pass, then the update of each optimizer,
/// which clips its own gradients. The loss is multiplied by the smallest of the loss scales. An optimizer with
/// gradients that are not finite skips its update; then every loss scale is reduced.
class OptimWrapperDict : public BaseOptimWrapper {
 public:
  /// @throws ConfigError  the name exists
  OptimWrapper& add(const std::string& name, OptimWrapper wrapper);

  std::size_t size() const noexcept { return wrappers_.size(); }
  bool contains(const std::string& name) const { return wrappers_.contains(name); }
  /// @throws ConfigError  the name is unknown; the message lists the known names
  OptimWrapper& at(const std::string& name);
  const OptimWrapper& at(const std::string& name) const;
  auto begin() noexcept { return wrappers_.begin(); }
  auto end() noexcept { return wrappers_.end(); }
  auto begin() const noexcept { return wrappers_.begin(); }
  auto end() const noexcept { return wrappers_.end(); }

  /// Calls OptimWrapper::begin_at of each. All of them process the same micro-batches.
  void begin_at(std::int64_t done, std::int64_t total);
  // All together.
  bool completes_step() const noexcept override { return wrappers_.begin()->second.completes_step(); }
  std::int64_t micro_batches_in_step() const override { return wrappers_.begin()->second.micro_batches_in_step(); }
  UpdateReport update_params(const Tensor& loss, std::optional<double> weight = std::nullopt,
                             const std::function<void()>& before_update = {}) override;
  void skip_update() noexcept override;
  bool uses_closure() const noexcept override { return false; }
  const GradScaler* scaler() const noexcept override;  ///< the one with the smallest scale
  const FlatParameters* own_parameters() const noexcept override { return nullptr; }

  /// Clears the gradients of all parameters (they become undefined).
  void drop_gradients();
  /// Calls OptimWrapper::reset of each.
  void reset() noexcept;
  /// The OptimWrapper::values of each, as "<name>.<option>".
  std::map<std::string, std::vector<double>> values(std::string_view option) const;

 private:
  std::map<std::string, OptimWrapper> wrappers_;
};

}  // namespace lockstep::optim
