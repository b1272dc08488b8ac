// SPDX-License-Identifier: BSD-3-Clause
#include "models/families/image_preprocessor.hpp"

#include <lockstep/core/error.hpp>

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

namespace lockstep::models {

namespace {

using batch::kind_of;
using batch::shape_text;
using batch::Value;
using batch::ValueList;

std::int64_t rounded_up(std::int64_t size, std::int64_t divisor) { return (size + divisor - 1) / divisor * divisor; }

/// Padded at the ends of its last dimensions. @param sizes  what those become
at::Tensor padded(const at::Tensor& tensor, const std::vector<std::int64_t>& sizes, double value) {
  std::vector<std::int64_t> pads;  // last dimension first: padding before, padding after
  for (std::size_t i = sizes.size(); i > 0; --i) {
    const auto dim = tensor.dim() - static_cast<std::int64_t>(sizes.size() - i + 1);
    pads.insert(pads.end(), {0, sizes[i - 1] - tensor.size(dim)});
  }
  const bool is_needed = std::any_of(pads.begin(), pads.end(), [](std::int64_t pad) { return pad != 0; });
  return is_needed ? at::constant_pad_nd(tensor, pads, value) : tensor;
}

bool is_one_or_three(const std::vector<double>& values) { return values.size() == 1 || values.size() == 3; }

}  // namespace

ImagePreprocessor::ImagePreprocessor(ImageOptions options) : options_(std::move(options)) {
  if (options_.mean.empty() != options_.std.empty()) throw ConfigError("mean and std of images: set both or none");
  if (!options_.mean.empty() && (!is_one_or_three(options_.mean) || !is_one_or_three(options_.std))) {
    throw ConfigError("mean and std of images need 1 or 3 values, not " + std::to_string(options_.mean.size()) +
                      " and " + std::to_string(options_.std.size()));
  }
  if (options_.bgr_to_rgb && options_.rgb_to_bgr)
    throw ConfigError("images: bgr_to_rgb and rgb_to_bgr cannot be combined");
  if (options_.pad_size_divisor < 1) throw ConfigError("images: pad_size_divisor must be at least 1");
}

/// @param images  [..., C, H, W]
at::Tensor ImagePreprocessor::normalized(const at::Tensor& images) const {
  const bool reverses = options_.bgr_to_rgb || options_.rgb_to_bgr;
  const bool needs_three = reverses || options_.mean.size() == 3 || options_.std.size() == 3;
  if (needs_three && images.size(-3) != 3) {
    throw DataError("images need three channels (3, H, W) here, not the shape " + shape_text(images));
  }
  at::Tensor result = (reverses ? images.flip({-3}) : images).to(at::kFloat);
  if (options_.mean.empty()) return result;
  const auto values = [&](const std::vector<double>& list) {
    return at::tensor(at::ArrayRef<double>(list)).to(result.device(), at::kFloat).view({-1, 1, 1});
  };
  return (result - values(options_.mean)) / values(options_.std);
}

at::Tensor ImagePreprocessor::operator()(const Value& images) const {
  if (images.is<at::Tensor>()) {
    const auto& tensor = images.as<at::Tensor>();
    if (tensor.dim() != 4) throw DataError("images need the shape (N, C, H, W), not " + shape_text(tensor));
    return padded(
        normalized(tensor),
        {rounded_up(tensor.size(2), options_.pad_size_divisor), rounded_up(tensor.size(3), options_.pad_size_divisor)},
        options_.pad_value);
  }
  if (!images.is<ValueList>()) throw DataError("images must be a list of tensors or a tensor, not " + kind_of(images));
  std::vector<at::Tensor> tensors;
  for (const Value& image : images.as<ValueList>()) {
    if (!image.is<at::Tensor>()) throw DataError("a list of images must contain tensors, not " + kind_of(image));
    const auto& tensor = image.as<at::Tensor>();
    if (tensor.dim() != 3) throw DataError("an image needs the shape (C, H, W), not " + shape_text(tensor));
    tensors.push_back(normalized(tensor));
  }
  return stack_batch(tensors, options_.pad_size_divisor, options_.pad_value);
}

at::Tensor stack_batch(std::span<const at::Tensor> tensors, std::int64_t divisor, double pad_value) {
  if (divisor < 1) throw DataError("stack_batch: the divisor must be at least 1");
  if (tensors.empty()) throw DataError("the list of tensors is empty");
  const at::Tensor& first = tensors.front();
  std::vector<std::int64_t> largest(static_cast<std::size_t>(std::max<std::int64_t>(first.dim() - 1, 0)), 0);
  for (const at::Tensor& tensor : tensors) {
    if (tensor.dim() != first.dim() || tensor.dim() == 0 || tensor.size(0) != first.size(0)) {
      throw DataError("tensors of the shapes " + shape_text(first) + " and " + shape_text(tensor) +
                      " cannot be stacked");
    }
    for (std::size_t i = 0; i < largest.size(); ++i) {
      largest[i] = std::max(largest[i], rounded_up(tensor.size(static_cast<std::int64_t>(i) + 1), divisor));
    }
  }
  std::vector<at::Tensor> equal;
  for (const at::Tensor& tensor : tensors) equal.push_back(padded(tensor, largest, pad_value));
  return at::stack(equal);
}

}  // namespace lockstep::models
