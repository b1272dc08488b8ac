// SPDX-License-Identifier: BSD-3-Clause
// Mixup and cutmix over the global batch: each sample is mixed with the one before it.
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/data/image.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/keys/cited.hpp"

namespace lockstep::data {

/// The name of a batch value: the class [N] int64 that has the larger part in each mixed sample.
inline constexpr const char* kMajorLabel = "major_label";

/// A line of train.mix.
struct MixRule {
  bool is_cutmix = false;
  double alpha = 1;           ///< the share of a sample has the distribution Beta(alpha, alpha)
  double probability = 1;     ///< that a batch is mixed; with is_by_sample, a sample
  bool is_by_sample = false;  ///< each sample has its own share and box

  bool operator==(const MixRule&) const = default;
};

/// How one sample is mixed with its partner.
struct SampleMix {
  double share = 1;  ///< share of the sample itself, in its target and, with mixup, in its values
  Box box = {};      ///< the pixels that come from the partner; empty with mixup
};

/// Keys train.mix and train.mix_until.
struct MixSettings {
  Cited<std::vector<MixRule>> rules = {};  ///< empty = off
  double until = 1;                        ///< fraction of the run after which nothing is mixed

  static KeySpecs keys();
  /// @throws ConfigError  a line is not a rule
  static MixSettings from(const Section& train);
  bool operator==(const MixSettings&) const = default;
};

/// The box of cutmix, cut at the borders of the image, and the share that remains.
/// @param share      in [0, 1]
/// @param center_y, center_x  a pixel of the image
SampleMix cut_around(ImageSize image, double share, std::int64_t center_y, std::int64_t center_x);

/// Copies the pixels of a box from one image to another one with the same layout.
/// @param strides  of channels, rows and columns, in values
void copy_box(const float* from, std::int64_t channels, const Box& box, const std::array<std::int64_t, 3>& strides,
              float* target);

/// Targets as probabilities of classes: `share` for the class of each sample and the rest for that of its partner, both
/// smoothed.
/// @param own, partner  in [0, classes)
/// @param smoothing     part that is spread evenly over all classes
/// @param out           [classes]
void mix_targets(std::int64_t own, std::int64_t partner, double share, double smoothing, std::span<float> out);

/// The mixing of the batches of a run: a pure function of the seed, the step and the position in the global batch.
class Mixing {
 public:
  struct MixingOptions {
    MixSettings settings;
    double smoothing = 0;  ///< loss.label_smoothing
    std::uint64_t seed = 0;
  };
  /// @throws ConfigError  samples of this task, or of these roles, cannot be mixed
  Mixing(MixingOptions options, const Task& task, const batch::Roles& roles);

  /// The rule that mixes the batch of a step; null = it is not mixed.
  const MixRule* rule_of(std::int64_t step, std::int64_t total_steps) const;

  /// @param position  in the global batch
  SampleMix draw(const MixRule& rule, std::int64_t step, std::int64_t position) const;

  /// Mixes each sample with the one before it. Targets become float32 [N, C], and kMajorLabel is added.
  /// @param batch  the partner of the first sample, and then the samples
  /// @param first  position of the first sample in the global batch
  /// @return       the samples, without the partner of the first
  /// @throws DataError  the samples are not float32, or one of them has no class
  batch::Batch mixed(batch::Batch batch, const MixRule& rule, std::int64_t step, std::int64_t first) const;

 private:
  MixingOptions options_;
  std::int64_t classes_;
  ImageSize image_;
};

}  // namespace lockstep::data
