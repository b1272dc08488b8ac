// SPDX-License-Identifier: BSD-3-Clause
#include "engine/measures/sample_pictures.hpp"

#include <lockstep/log/log.hpp>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "core/message.hpp"

namespace lockstep::engine {

namespace {

constexpr std::int64_t kLongestSide = 256;  // larger ones are scaled down: a page holds all of them
constexpr std::int64_t kGap = 2;            // between image and mask

/// @param sample  [C, H, W] or [H, W]
/// @return        [3, H', W'] float
at::Tensor colors_of(const at::Tensor& sample) {
  at::Tensor image = sample.detach().to(at::kCPU, at::kFloat).nan_to_num(0, 0, 0);
  if (image.dim() == 2) image = image.unsqueeze(0);
  const std::int64_t height = image.size(1);
  const std::int64_t width = image.size(2);
  if (image.size(0) != 3) image = image.narrow(0, 0, 1).expand({3, height, width});
  const std::int64_t longest = std::max(height, width);
  if (longest <= kLongestSide) return image;
  const auto scaled = [longest](std::int64_t side) { return std::max<std::int64_t>(1, side * kLongestSide / longest); };
  return at::adaptive_avg_pool2d(image, {scaled(height), scaled(width)});
}

/// @param low  becomes black; the largest number becomes full
/// @return     [H, W, 3] bytes
at::Tensor bytes_of(const at::Tensor& colors, double low) {
  const double high = colors.max().item<double>();
  const double factor = high > low ? 255 / (high - low) : 0;
  return ((colors - low) * factor).round().clamp(0, 255).to(at::kByte).permute({1, 2, 0}).contiguous();
}

/// @param mask  [H, W], [1, H, W], or [K, H, W] scores, of which the highest counts
/// @return      as bytes_of, of `height` rows
at::Tensor bytes_of_mask(const at::Tensor& mask, std::int64_t height, std::int64_t width) {
  at::Tensor flat = mask.detach().to(at::kCPU, at::kFloat);
  if (flat.dim() == 3) flat = flat.size(0) == 1 ? flat[0] : flat.argmax(0).to(at::kFloat);
  const at::Tensor sized = at::upsample_nearest2d(flat.unsqueeze(0).unsqueeze(0), {height, width})[0];
  return bytes_of(sized.nan_to_num(0, 0, 0).expand({3, height, width}), 0);
}

bool are_classes(const at::Tensor& tensor, std::int64_t samples) {
  return tensor.defined() && tensor.dim() == 1 && tensor.size(0) == samples &&
         at::isIntegralType(tensor.scalar_type(), false);
}

void caption(Image& image, std::int64_t target, std::int64_t prediction, const std::vector<std::string>& names) {
  const auto text = [&names](std::int64_t c) {
    const bool has_name = c >= 0 && c < std::ssize(names);
    return has_name ? names[static_cast<std::size_t>(c)] : std::to_string(c);
  };
  image.is_wrong = target >= 0 && target != prediction;
  image.caption = target < 0 ? "" : text(target);
  if (target == prediction) return;
  image.caption += (image.caption.empty() ? "predicted as " : ", predicted as ") + text(prediction);
}

}  // namespace

Image picture_of_sample(const at::Tensor& sample, const at::Tensor& mask) {
  const at::Tensor colors = colors_of(sample);
  at::Tensor pixels = bytes_of(colors, colors.min().item<double>());
  if (mask.defined() && (mask.dim() == 2 || mask.dim() == 3)) {
    const at::Tensor gap = at::full({pixels.size(0), kGap, 3}, 255, pixels.options());
    pixels = at::cat({pixels, gap, bytes_of_mask(mask, pixels.size(0), pixels.size(1))}, 1).contiguous();
  }
  Image image{.name = "", .height = pixels.size(0), .width = pixels.size(1)};
  const std::uint8_t* const begin = pixels.const_data_ptr<std::uint8_t>();
  image.pixels.assign(begin, begin + pixels.numel());
  return image;
}

void SamplePictures::add(const LastBatch& batch) {
  try {
    take(batch);
  } catch (const std::exception& failure) {  // a run does not end for an image
    log::warning("no sample images are stored for the evaluation: " + message_of(failure));
    images_.clear();
    max_ = 0;
  }
}

void SamplePictures::take(const LastBatch& batch) {
  const auto held = static_cast<std::int64_t>(images_.size());
  const batch::Value& given = batch.given->at(batch.given->input_key());
  if (held >= max_ || !given.is<at::Tensor>()) return;
  const auto& input = given.as<at::Tensor>();
  if (input.dim() < 3 || input.dim() > 4 || input.numel() == 0) return;
  const models::Predictions predictions = batch.predictions();
  const at::Tensor classes = predictions.find("classes");
  const at::Tensor masks = predictions.find("masks");
  const at::Tensor target = batch.batch->has_target() ? batch.batch->target() : at::Tensor();
  const bool has_classes = are_classes(classes, input.size(0)) && are_classes(target, input.size(0));
  for (std::int64_t i = 0; i < std::min(max_ - held, input.size(0)); ++i) {
    Image image = picture_of_sample(input[i], masks.defined() ? masks[i] : at::Tensor());
    image.name = fmt::format("sample_{:02}", images_.size());
    if (has_classes) caption(image, target[i].item<std::int64_t>(), classes[i].item<std::int64_t>(), class_names_);
    images_.push_back(std::move(image));
  }
}

void SamplePictures::put_in(EventStorage& events) {
  for (Image& image : images_) events.put(std::move(image));
  images_.clear();
}

}  // namespace lockstep::engine
