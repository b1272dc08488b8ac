// SPDX-License-Identifier: BSD-3-Clause
#include "engine/evaluation/sample_pictures.hpp"

#include <lockstep/log/log.hpp>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "core/text/text.hpp"
#include "engine/evaluation/predictions.hpp"

namespace lockstep::engine {

namespace {

constexpr std::int64_t kLongestSide = 256;  // larger ones are scaled down: a page holds all of them
constexpr std::int64_t kGap = 2;            // pixels between image and masks
constexpr std::int64_t kNotCounted = 255;   // class in masks that is not counted

/// Colors of the classes from 1 on, in turn; told apart by hue and by lightness.
constexpr std::array<std::array<int, 3>, 10> kClassColors = {{{230, 97, 1},
                                                              {49, 130, 206},
                                                              {72, 187, 120},
                                                              {214, 69, 101},
                                                              {148, 103, 189},
                                                              {236, 201, 75},
                                                              {0, 170, 170},
                                                              {139, 90, 43},
                                                              {247, 150, 200},
                                                              {120, 120, 200}}};

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

/// @param classes  [H, W] whole numbers
/// @return         [H, W, 3] bytes
at::Tensor bytes_of_classes(const at::Tensor& classes) {
  constexpr auto kColors = static_cast<std::int64_t>(kClassColors.size());
  at::Tensor table = at::zeros({kColors + 2, 3}, at::kByte);  // black, the colors, light gray
  for (std::int64_t c = 0; c < kColors; ++c) {
    for (std::int64_t i = 0; i < 3; ++i) {
      table[c + 1][i] = kClassColors[static_cast<std::size_t>(c)][static_cast<std::size_t>(i)];
    }
  }
  table[kColors + 1].fill_(224);
  const at::Tensor is_counted = classes.ge(0).logical_and(classes.ne(kNotCounted));
  const at::Tensor row = at::where(classes.eq(0), classes, (classes - 1).remainder(kColors) + 1);
  const at::Tensor rows = row.masked_fill(is_counted.logical_not(), kColors + 1);
  return table.index_select(0, rows.flatten()).view({classes.size(0), classes.size(1), 3});
}

/// @param mask  [H, W], [1, H, W], or [K, H, W] scores, of which the highest counts
/// @return      as bytes_of, of `height` rows
at::Tensor bytes_of_mask(const at::Tensor& mask, std::int64_t height, std::int64_t width) {
  at::Tensor flat = mask.detach().to(at::kCPU);
  if (flat.dim() == 3) flat = flat.size(0) == 1 ? flat[0] : flat.argmax(0);
  const bool are_classes = !flat.is_floating_point();
  const at::Tensor numbers = flat.to(at::kFloat).unsqueeze(0).unsqueeze(0);
  const at::Tensor sized = at::upsample_nearest2d(numbers, {height, width})[0];
  if (are_classes) return bytes_of_classes(sized[0].to(at::kLong));
  return bytes_of(sized.nan_to_num(0, 0, 0).expand({3, height, width}), 0);
}

/// "93.1 % of the pixels are right"; empty without a target of the same size.
std::string caption_of_masks(const at::Tensor& target, const at::Tensor& predicted) {
  if (!target.defined() || target.is_floating_point() || target.sizes() != predicted.sizes()) return "";
  const at::Tensor is_counted = target.ge(0).logical_and(target.ne(kNotCounted));
  const auto counted = is_counted.sum().item<double>();
  if (counted == 0) return "";
  const auto right = predicted.eq(target).logical_and(is_counted).sum().item<double>();
  return fmt::format("{:.1f} % of the pixels are right", 100 * right / counted);
}

bool are_classes(const at::Tensor& tensor, std::int64_t samples) {
  return tensor.defined() && tensor.dim() == 1 && tensor.size(0) == samples &&
         at::isIntegralType(tensor.scalar_type(), false);
}

void caption(Picture& image, std::int64_t target, std::int64_t prediction, const std::vector<std::string>& names) {
  image.is_wrong = target >= 0 && target != prediction;
  image.caption = target < 0 ? "" : class_name(names, target);
  if (target == prediction) return;
  image.caption += (image.caption.empty() ? "predicted as " : ", predicted as ") + class_name(names, prediction);
}

}  // namespace

Picture picture_of_sample(const at::Tensor& sample, const std::vector<at::Tensor>& masks) {
  const at::Tensor colors = colors_of(sample);
  at::Tensor pixels = bytes_of(colors, colors.min().item<double>());
  for (const at::Tensor& mask : masks) {
    if (!mask.defined() || mask.dim() < 2 || mask.dim() > 3) continue;
    const at::Tensor gap = at::full({pixels.size(0), kGap, 3}, 255, pixels.options());
    pixels = at::cat({pixels, gap, bytes_of_mask(mask, colors.size(1), colors.size(2))}, 1).contiguous();
  }
  Picture image{.name = "", .height = pixels.size(0), .width = pixels.size(1)};
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
    const bool has_mask = masks.defined();
    const bool has_target_mask = has_mask && target.defined() && target.dim() >= 3;
    const at::Tensor wanted = has_target_mask ? target[i] : at::Tensor();
    const at::Tensor predicted = has_mask ? masks[i] : at::Tensor();
    Picture image = picture_of_sample(view_.of(input[i]), {view_.of(wanted), view_.of(predicted)});
    image.name = fmt::format("{}_{:02}", has_mask ? "mask" : "sample", images_.size());
    if (has_mask) image.caption = caption_of_masks(wanted, predicted);
    if (has_classes) caption(image, target[i].item<std::int64_t>(), classes[i].item<std::int64_t>(), class_names_);
    images_.push_back(std::move(image));
  }
}

void SamplePictures::put_in(EventStorage& events) {
  for (Picture& image : images_) events.put(std::move(image));
  images_.clear();
}

}  // namespace lockstep::engine
