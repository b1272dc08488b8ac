// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <utility>

namespace lockstep::optim {

OptimWrapper& OptimWrapperDict::add(const std::string& name, OptimWrapper wrapper) {
  const auto [place, is_new] = wrappers_.emplace(name, std::move(wrapper));
  if (!is_new) throw ConfigError("two optimizers have the name '" + name + "'");
  return place->second;
}

const OptimWrapper& OptimWrapperDict::at(const std::string& name) const {
  const auto found = wrappers_.find(name);
  if (found != wrappers_.end()) return found->second;
  std::string known;
  for (const auto& [each, wrapper] : wrappers_) known += (known.empty() ? "" : ", ") + each;
  throw ConfigError("there is no optimizer named '" + name + "'; the names are: " + known);
}

OptimWrapper& OptimWrapperDict::at(const std::string& name) {
  return const_cast<OptimWrapper&>(std::as_const(*this).at(name));
}

const GradScaler* OptimWrapperDict::scaler() const noexcept {
  const GradScaler* smallest = nullptr;
  for (const auto& [name, wrapper] : wrappers_) {
    const GradScaler* const own = wrapper.scaler();
    if (own != nullptr && (smallest == nullptr || own->scale() < smallest->scale())) smallest = own;
  }
  return smallest;
}

void OptimWrapperDict::begin_at(std::int64_t done, std::int64_t total) {
  for (auto& [name, wrapper] : wrappers_) wrapper.begin_at(done, total);
}

void OptimWrapperDict::drop_gradients() {
  for (auto& [name, wrapper] : wrappers_) wrapper.parameters().drop_gradients();
}

void OptimWrapperDict::skip_update() noexcept {
  for (auto& [name, wrapper] : wrappers_) wrapper.skip_update();
}

void OptimWrapperDict::reset() noexcept {
  for (auto& [name, wrapper] : wrappers_) wrapper.reset();
}

std::map<std::string, std::vector<double>> OptimWrapperDict::values(std::string_view option) const {
  std::map<std::string, std::vector<double>> values;
  for (const auto& [name, wrapper] : wrappers_) values[name + "." + std::string(option)] = wrapper.values(option);
  return values;
}

}  // namespace lockstep::optim
