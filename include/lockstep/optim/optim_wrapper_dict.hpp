// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/optim_wrapper.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::optim {

/// Several optimizers of one training, by name: a generator's and its discriminator's, say. Each steps by itself; this
/// does what concerns all of them. Goes through them in alphabetical order.
class OptimWrapperDict {
 public:
  /// @throws ConfigError  there is one of this name
  OptimWrapper& add(const std::string& name, OptimWrapper wrapper);

  std::size_t size() const noexcept { return wrappers_.size(); }
  bool contains(const std::string& name) const { return wrappers_.contains(name); }
  /// @throws ConfigError  none has this name; the message lists those that there are
  OptimWrapper& at(const std::string& name);
  const OptimWrapper& at(const std::string& name) const;
  auto begin() noexcept { return wrappers_.begin(); }
  auto end() noexcept { return wrappers_.end(); }
  auto begin() const noexcept { return wrappers_.begin(); }
  auto end() const noexcept { return wrappers_.end(); }

  /// OptimWrapper::begin_at of each: all see the same micro_batches.
  void begin_at(std::int64_t done, std::int64_t total);
  /// Makes the gradients of all parameters undefined.
  void drop_gradients();
  /// OptimWrapper::reset of each.
  void reset() noexcept;
  /// OptimWrapper::values of each, as "<name>.<option>".
  std::map<std::string, std::vector<double>> values(std::string_view option) const;

 private:
  std::map<std::string, OptimWrapper> wrappers_;
};

}  // namespace lockstep::optim
