// SPDX-License-Identifier: BSD-3-Clause
// What an evaluation leaves to be looked at.
#pragma once

#include <lockstep/engine/event_storage.hpp>
#include <lockstep/engine/train_step.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/evaluation/map_view.hpp"

namespace lockstep::engine {

/// The picture of a sample of at most 256 pixels a side. Colors go from the smallest number to the largest; with C = 3
/// they are red, green and blue, otherwise the first channel is gray.
/// @param sample  [C, H, W] or [H, W]
/// @param masks   are drawn next to it, in order: [H, W], [1, H, W], or [K, H, W] scores, of which the highest counts.
///                Undefined ones are left out. A class has the same color in every picture: 0 is black, and what does
///                not count (below 0, or 255) light gray. Real numbers [H, W] go from black (0) to white (the largest)
Picture picture_of_sample(const at::Tensor& sample, const std::vector<at::Tensor>& masks);

/// The first samples of an evaluation as images, with what the model makes of them.
class SamplePictures {
 public:
  /// @param most  0 = none
  /// @param class_names  of the task; empty = the numbers of the classes are shown
  /// @param view         how fields and their masks are drawn
  explicit SamplePictures(std::int64_t max, std::vector<std::string> class_names = {}, const MapView& view = {})
      : max_(max), class_names_(std::move(class_names)), view_(view) {}

  /// Takes samples until there are enough; those whose inputs are no images, [C, H, W] or [H, W], are skipped. Colors
  /// go from the sample's smallest number to its largest; with C = 3 they are red, green and blue, otherwise the first
  /// channel is gray. The target mask, if there is one, and the predicted mask are next to the image. Errors are
  /// logged.
  void add(const LastBatch& batch);
  /// Puts them into `events` as "sample_00" and so on; those with masks as "mask_00".
  void put_in(EventStorage& events);

 private:
  void take(const LastBatch& batch);

  std::int64_t max_;
  std::vector<std::string> class_names_;
  MapView view_;
  std::vector<Picture> images_;
};

}  // namespace lockstep::engine
