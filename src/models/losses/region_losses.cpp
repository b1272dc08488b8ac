// SPDX-License-Identifier: BSD-3-Clause
// Losses of segmentations that compare whole regions.
#include <torch/types.h>

#include "models/losses/loss_rows.hpp"

namespace lockstep::models {

namespace {

constexpr double kMinRegion = 1e-7;

/// Sums over the pixels of a micro-batch, of each class [C].
struct Regions {
  at::Tensor common;  ///< probability times target
  at::Tensor both;    ///< probability plus target
  at::Tensor is_present;
};

/// @param output  [N, C, H, W]; of one channel, the score of the only class
/// @param given   [N, H, W], or [N, 1, H, W] with one channel
Regions regions_of(const at::Tensor& output, const at::Tensor& given, std::int64_t ignored) {
  const at::Tensor scores = in_float32(output).flatten(2);
  const std::int64_t classes = scores.size(1);
  const at::Tensor target = without_ignored(given.to(at::kLong), ignored).reshape({scores.size(0), -1});
  const at::Tensor is_counted = target.ne(kIgnoredClass);
  const at::Tensor of_class = target.masked_fill(is_counted.logical_not(), 0);
  const at::Tensor wanted = classes == 1 ? of_class.unsqueeze(1) : at::one_hot(of_class, classes).movedim(-1, 1);
  const at::Tensor counted = is_counted.unsqueeze(1);
  const at::Tensor is_class = wanted.to(scores.scalar_type()) * counted;
  const at::Tensor likely = (classes == 1 ? scores.sigmoid() : scores.softmax(1)).masked_fill(counted.logical_not(), 0);
  return {.common = (likely * is_class).sum(at::IntArrayRef({0, 2})),
          .both = (likely + is_class).sum(at::IntArrayRef({0, 2})),
          .is_present = is_class.sum(at::IntArrayRef({0, 2})).gt(0)};
}

at::Tensor dice_of(const Regions& regions, double smooth) {
  const at::Tensor scores = (2 * regions.common + smooth) / (regions.both + smooth).clamp_min(kMinRegion);
  return ((1 - scores) * regions.is_present).mean();
}

at::Tensor jaccard_of(const Regions& regions, double smooth) {
  const at::Tensor either = regions.both - regions.common;
  return ((1 - (regions.common + smooth) / (either + smooth).clamp_min(kMinRegion)) * regions.is_present).mean();
}

using Score = at::Tensor (*)(const Regions& regions, double smooth);

Loss make_region(const Section& loss, const Task& task, Score score) {
  require_task(loss, task, {TaskKind::segmentation});
  const double smooth = loss.real("smooth");
  const std::int64_t ignored = ignored_class(loss, task.classes > kMaskIgnored ? kIgnoredClass : kMaskIgnored);
  return loss_of_target([=](const at::Tensor& output, const at::Tensor& target,
                            bool) { return score(regions_of(output, target, ignored), smooth); },
                        [=](const at::Tensor& target) { return counted_targets(target, ignored); },
                        // The score of an only class stands for 0 and 1.
                        {.classes = task.classes == 1 ? 2 : task.classes, .ignored = ignored});
}

}  // namespace

Loss make_dice(const Section& loss, const Task& task) { return make_region(loss, task, dice_of); }
Loss make_jaccard(const Section& loss, const Task& task) { return make_region(loss, task, jaccard_of); }

Loss make_pixels_and_dice(const Section& loss, const Task& task) {
  Loss sum = make_pixels(loss, task);
  sum.value = [pixels = sum.value, dice = make_dice(loss, task).value, pixels_weight = loss.real("pixels_weight"),
               dice_weight = loss.real("dice_weight")](const batch::Outputs& outputs, const batch::Batch& batch,
                                                       bool is_training) {
    return pixels_weight * pixels(outputs, batch, is_training) + dice_weight * dice(outputs, batch, is_training);
  };
  return sum;
}

}  // namespace lockstep::models
