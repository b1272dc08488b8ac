// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>

#include <optional>
#include <tuple>

#include "fake_gpu/kernels/own_functions.hpp"

namespace lockstep::fake_gpu {

namespace {

using Masked = std::tuple<at::Tensor, at::Tensor>;

Masked drop(const at::Tensor& input, double kept, const std::optional<at::Generator>& generator) {
  const at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  mask.bernoulli_(kept, generator);
  const double scale = kept == 0 ? 0 : 1 / kept;
  return {input.mul(mask).mul_(scale), mask};
}

/// @param kept  the probability with which an element stays
Masked fused_dropout(const at::Tensor& self, double kept, std::optional<at::Generator> generator) {
  auto [result, mask] = drop(self, kept, generator);
  return {result, mask.to(at::kByte)};
}

Masked native_dropout(const at::Tensor& input, double dropped, std::optional<bool> train,
                      std::optional<at::Generator> generator) {
  if (train.value_or(true)) return drop(input, 1 - dropped, generator);
  return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
}

at::Tensor masked_scale(const at::Tensor& self, const at::Tensor& mask, double scale) {
  return self.mul(mask.to(self.scalar_type())).mul_(scale);
}

}  // namespace

void add_dropout_functions(OwnFunctions& rows) {
  rows.emplace("aten::_fused_dropout", boxable(fused_dropout));
  rows.emplace("aten::native_dropout", boxable(native_dropout));
  rows.emplace("aten::_masked_scale", boxable(masked_scale));
}

}  // namespace lockstep::fake_gpu
