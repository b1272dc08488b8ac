// SPDX-License-Identifier: BSD-3-Clause
#include "optim/update/live_numbers.hpp"

#include <torch/types.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace lockstep::optim {

LiveNumbers::LiveNumbers(at::Device device)
    : on_device_(at::zeros({kMaxNumbers}, at::TensorOptions().dtype(at::kDouble).device(device))) {}

at::Tensor LiveNumbers::number(NumberSource value) {
  const auto position = static_cast<std::int64_t>(numbers_.size());
  if (position == kMaxNumbers) throw std::runtime_error("the step has too many numbers that change");
  if (on_device_.is_cpu()) on_device_.mutable_data_ptr<double>()[position] = value();
  numbers_.push_back(std::move(value));
  return on_device_.select(0, position);
}

void LiveNumbers::fixed(NumberSource value) {
  const double recorded = value();
  fixed_.push_back({std::move(value), recorded});
}

bool LiveNumbers::holds() const {
  return std::all_of(fixed_.begin(), fixed_.end(), [](const Fixed& each) { return each.value() == each.recorded; });
}

bool LiveNumbers::refresh() {
  if (!holds()) return false;
  const at::Tensor here = on_device_.narrow(0, 0, static_cast<std::int64_t>(numbers_.size()));
  // LibTorch gives pinned memory away again only when copies from it are over.
  const at::Tensor on_host =
      here.is_cpu() ? here : at::empty(here.sizes(), here.options().device(at::kCPU).pinned_memory(true));
  auto* const values = on_host.mutable_data_ptr<double>();
  for (std::size_t i = 0; i < numbers_.size(); ++i) values[i] = numbers_[i]();
  if (!here.is_cpu()) here.copy_(on_host, /*non_blocking=*/true);
  return true;
}

void LiveUpdate::fix_options() const {
  for (const auto& [name, value] : *options_) {
    if (name == "lr") continue;
    fixed([name = name](const Options& options, std::int64_t) { return options.at(name); });
  }
}

at::Tensor Number::live(at::ScalarType type) const { return live_.to(type); }

void multiply(const TensorList& list, const Number& factor) {
  if (!factor.is_live()) return at::_foreach_mul_(list, factor.plain());
  at::_foreach_mul_(list, factor.live(list.front().scalar_type()));
}

at::Tensor product(const at::Tensor& tensor, const Number& factor) {
  return factor.is_live() ? tensor.mul(factor.live(tensor.scalar_type())) : tensor.mul(factor.plain());
}

at::Tensor moved_towards(const at::Tensor& tensor, const at::Tensor& other, const Number& weight) {
  return weight.is_live() ? tensor.lerp(other, weight.live(tensor.scalar_type())) : tensor.lerp(other, weight.plain());
}

}  // namespace lockstep::optim
