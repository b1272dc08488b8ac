// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/winograd.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "kernels/kernels.hpp"
#include "kernels/winograd.hpp"

namespace lockstep::models {

namespace {

constexpr std::int64_t kFewestPixels = 256;  // if there are fewer, transforming the weight costs more than it saves

const float* memory_of(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr; }

}  // namespace

bool is_for_winograd(const at::Tensor& weight, const Convolution& geometry) {
  return kernels::is_used(kernels::Kernel::winograd) && !geometry.is_transposed && geometry.groups == 1 &&
         geometry.stride == 1 && geometry.padding <= 2 && weight.scalar_type() == at::kFloat && weight.size(2) == 3 &&
         weight.size(3) == 3 && weight.size(0) % kernels::kWinogradPanel == 0 &&
         weight.size(1) % kernels::kWinogradPanel == 0 && weight.is_contiguous(at::MemoryFormat::ChannelsLast);
}

bool is_transformed_once(std::int64_t pixels) { return pixels >= kFewestPixels; }

at::Tensor winograd_weight(const at::Tensor& weight, bool is_turned) {
  const std::int64_t outputs = weight.size(0);
  const std::int64_t channels = weight.size(1);
  const std::int64_t columns = is_turned ? channels : outputs;
  at::Tensor result = at::empty({kernels::kWinogradPositions, columns / kernels::kWinogradPanel,
                                 is_turned ? outputs : channels, kernels::kWinogradPanel},
                                weight.options().memory_format(at::MemoryFormat::Contiguous));
  at::parallel_for(0, columns / kernels::kWinogradPanel, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t panel = begin; panel < end; ++panel) {
      kernels::write_winograd_panel(weight.const_data_ptr<float>(), outputs, channels, panel, is_turned,
                                    result.mutable_data_ptr<float>());
    }
  });
  return result;
}

at::Tensor winograd_convolution(const at::Tensor& images, const at::Tensor& transformed, const at::Tensor& bias,
                                const at::Tensor& residual, std::int64_t padding, bool has_relu) {
  const kernels::WinogradTask task{.images = images.const_data_ptr<float>(),
                                   .weight = transformed.const_data_ptr<float>(),
                                   .bias = memory_of(bias),
                                   .residual = memory_of(residual),
                                   .height = images.size(2),
                                   .width = images.size(3),
                                   .channels = images.size(1),
                                   .out_height = images.size(2) + 2 * padding - 2,
                                   .out_width = images.size(3) + 2 * padding - 2,
                                   .outputs = transformed.size(1) * kernels::kWinogradPanel,
                                   .padding = padding,
                                   .has_relu = has_relu};
  at::Tensor result = at::empty({images.size(0), task.outputs, task.out_height, task.out_width},
                                images.options().memory_format(at::MemoryFormat::ChannelsLast));
  const std::int64_t tiles = task.tiles(images.size(0));
  const std::int64_t blocks = (tiles + kernels::kWinogradTiles - 1) / kernels::kWinogradTiles;
  at::parallel_for(0, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    const at::Tensor left =
        at::empty({kernels::kWinogradPositions, kernels::kWinogradTiles, task.channels}, at::kFloat);
    const at::Tensor products =
        at::empty({kernels::kWinogradPositions, kernels::kWinogradTiles, task.outputs}, at::kFloat);
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * kernels::kWinogradTiles;
      const std::int64_t count = std::min(kernels::kWinogradTiles, tiles - first);
      kernels::write_winograd_tiles(task, first, count, left.mutable_data_ptr<float>(),
                                    products.mutable_data_ptr<float>(), result.mutable_data_ptr<float>());
    }
  });
  return result;
}

void write_winograd_gradient(const at::Tensor& images, const at::Tensor& gradient, std::int64_t padding,
                             float* result) {
  const kernels::WinogradTask task{.images = images.const_data_ptr<float>(),
                                   .height = images.size(2),
                                   .width = images.size(3),
                                   .channels = images.size(1),
                                   .out_height = gradient.size(2),
                                   .out_width = gradient.size(3),
                                   .outputs = gradient.size(1),
                                   .padding = padding};
  const std::int64_t tiles = task.tiles(images.size(0));
  at::parallel_for(
      0, task.channels / kernels::kWinogradPanel, 1, [&](std::int64_t first_panel, std::int64_t last_panel) {
        const std::int64_t begin = first_panel * kernels::kWinogradPanel;
        const std::int64_t end = last_panel * kernels::kWinogradPanel;
        const at::Tensor left =
            at::empty({kernels::kWinogradPositions, task.outputs, kernels::kSummedTiles}, at::kFloat);
        const at::Tensor right =
            at::empty({kernels::kWinogradPositions, end - begin, kernels::kSummedTiles}, at::kFloat);
        const at::Tensor sums = at::zeros({kernels::kWinogradPositions, task.outputs, end - begin}, at::kFloat);
        for (std::int64_t first = 0; first < tiles; first += kernels::kSummedTiles) {
          const std::int64_t count = std::min(kernels::kSummedTiles, tiles - first);
          kernels::add_winograd_tiles(task, gradient.const_data_ptr<float>(), first, count, begin, end,
                                      left.mutable_data_ptr<float>(), right.mutable_data_ptr<float>(),
                                      sums.mutable_data_ptr<float>());
        }
        kernels::write_winograd_taps(sums.const_data_ptr<float>(), task.outputs, end - begin, result + begin,
                                     task.channels);
      });
}

}  // namespace lockstep::models
