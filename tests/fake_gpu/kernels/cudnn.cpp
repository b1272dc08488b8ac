// SPDX-License-Identifier: BSD-3-Clause
// Operators of cuDNN, and LibTorch's own depthwise convolutions for CUDA.
#include <ATen/ops/affine_grid_generator.h>
#include <ATen/ops/affine_grid_generator_backward.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/grid_sampler_2d.h>
#include <ATen/ops/grid_sampler_2d_backward.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "fake_gpu/kernels/own_functions.hpp"

namespace lockstep::fake_gpu {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

// Constants of cuDNN's grid sampler, in the terms of LibTorch's.
constexpr std::int64_t kBilinear = 0;
constexpr std::int64_t kPadWithZeros = 0;
constexpr bool kAlignCorners = true;

at::Tensor convolve(const at::Tensor& self, const at::Tensor& weight, const OptionalTensor& bias,
                    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, std::int64_t groups) {
  const std::vector<std::int64_t> no_output_padding(padding.size(), 0);
  return at::convolution(self, weight, bias, stride, padding, dilation, /*transposed=*/false, no_output_padding,
                         groups);
}

at::Tensor cudnn_convolution(const at::Tensor& self, const at::Tensor& weight, at::IntArrayRef padding,
                             at::IntArrayRef stride, at::IntArrayRef dilation, std::int64_t groups, bool, bool, bool) {
  return convolve(self, weight, {}, stride, padding, dilation, groups);
}

at::Tensor cudnn_convolution_transpose(const at::Tensor& self, const at::Tensor& weight, at::IntArrayRef padding,
                                       at::IntArrayRef output_padding, at::IntArrayRef stride, at::IntArrayRef dilation,
                                       std::int64_t groups, bool, bool, bool) {
  return at::convolution(self, weight, {}, stride, padding, dilation, /*transposed=*/true, output_padding, groups);
}

at::Tensor conv_depthwise(const at::Tensor& self, const at::Tensor& weight, at::IntArrayRef, const OptionalTensor& bias,
                          at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation) {
  return convolve(self, weight, bias, stride, padding, dilation, self.size(1));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> cudnn_batch_norm(
    const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias, const OptionalTensor& running_mean,
    const OptionalTensor& running_var, bool training, double momentum, double epsilon) {
  auto [output, mean, invstd] =
      at::native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, epsilon);
  return {output, mean, invstd, at::empty({0}, at::kByte)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> cudnn_batch_norm_backward(
    const at::Tensor& input, const at::Tensor& grad_output, const at::Tensor& weight,
    const OptionalTensor& running_mean, const OptionalTensor& running_var, const OptionalTensor& mean,
    const OptionalTensor& invstd, double epsilon, const at::Tensor&) {
  return at::native_batch_norm_backward(grad_output, input, weight, running_mean, running_var, mean, invstd,
                                        /*train=*/true, epsilon, {true, true, true});
}

at::Tensor cudnn_grid_sampler(const at::Tensor& self, const at::Tensor& grid) {
  return at::grid_sampler_2d(self, grid, kBilinear, kPadWithZeros, kAlignCorners);
}

std::tuple<at::Tensor, at::Tensor> cudnn_grid_sampler_backward(const at::Tensor& self, const at::Tensor& grid,
                                                               const at::Tensor& grad_output) {
  return at::grid_sampler_2d_backward(grad_output, self, grid, kBilinear, kPadWithZeros, kAlignCorners, {true, true});
}

at::Tensor cudnn_affine_grid_generator(const at::Tensor& theta, std::int64_t n, std::int64_t c, std::int64_t h,
                                       std::int64_t w) {
  return at::affine_grid_generator(theta, {n, c, h, w}, kAlignCorners);
}

at::Tensor cudnn_affine_grid_generator_backward(const at::Tensor& grad, std::int64_t n, std::int64_t c, std::int64_t h,
                                                std::int64_t w) {
  return at::affine_grid_generator_backward(grad, {n, c, h, w}, kAlignCorners);
}

}  // namespace

void add_cudnn_functions(OwnFunctions& rows) {
  rows.emplace("aten::cudnn_convolution", boxable(cudnn_convolution));
  rows.emplace("aten::cudnn_convolution_transpose", boxable(cudnn_convolution_transpose));
  rows.emplace("aten::_conv_depthwise2d", boxable(conv_depthwise));
  rows.emplace("aten::conv_depthwise3d", boxable(conv_depthwise));
  rows.emplace("aten::cudnn_batch_norm", boxable(cudnn_batch_norm));
  rows.emplace("aten::cudnn_batch_norm_backward", boxable(cudnn_batch_norm_backward));
  rows.emplace("aten::cudnn_grid_sampler", boxable(cudnn_grid_sampler));
  rows.emplace("aten::cudnn_grid_sampler_backward", boxable(cudnn_grid_sampler_backward));
  rows.emplace("aten::cudnn_affine_grid_generator", boxable(cudnn_affine_grid_generator));
  rows.emplace("aten::cudnn_affine_grid_generator_backward", boxable(cudnn_affine_grid_generator_backward));
}

}  // namespace lockstep::fake_gpu
