// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/models/loss.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace lockstep::models {

inline constexpr std::int64_t kIgnoredClass = -100;  ///< data::kIgnored
inline constexpr std::int64_t kMaskIgnored = 255;    ///< value in masks that is ignored, unless it is a class

/// @throws ConfigError  the task is of none of these kinds
void require_task(const Section& loss, const Task& task, std::initializer_list<TaskKind> kinds);

/// Sums over classes lose digits in 16 bits.
at::Tensor in_float32(const at::Tensor& output);

/// The numbers of a list, or of a text file.
/// @throws ConfigError  neither, or a number is negative or not finite, or all are 0
std::vector<double> loss_factors(const Section& loss, const std::string& key);

/// One factor for each class: a list, or the numbers of a text file.
/// @return  [C] float64; undefined where the key is empty
/// @throws ConfigError  other than C numbers, or as loss_factors
at::Tensor class_factors(const Section& loss, const std::string& key, const Task& task);

/// The class that does not count besides kIgnoredClass.
/// @param usual  where the key has its default
std::int64_t ignored_class(const Section& loss, std::int64_t usual);

/// The target with kIgnoredClass in place of `ignored`.
at::Tensor without_ignored(const at::Tensor& target, std::int64_t ignored);

/// The number of targets that are neither kIgnoredClass nor `ignored`.
double counted_targets(const at::Tensor& target, std::int64_t ignored = kIgnoredClass);

Loss make_cross_entropy(const Section& loss, const Task& task);
Loss make_pixels(const Section& loss, const Task& task);
Loss make_bce(const Section& loss, const Task& task);
Loss make_focal(const Section& loss, const Task& task);
Loss make_mse(const Section& loss, const Task& task);
Loss make_l1(const Section& loss, const Task& task);
Loss make_huber(const Section& loss, const Task& task);
Loss make_smooth_l1(const Section& loss, const Task& task);
Loss make_relative_l2(const Section& loss, const Task& task);
Loss make_relative_l1(const Section& loss, const Task& task);
Loss make_h1(const Section& loss, const Task& task);
Loss make_l2(const Section& loss, const Task& task);
Loss make_h1_absolute(const Section& loss, const Task& task);
Loss make_dice(const Section& loss, const Task& task);
Loss make_jaccard(const Section& loss, const Task& task);
Loss make_pixels_and_dice(const Section& loss, const Task& task);
/// The row without its teacher, see with_teacher: the cross-entropy that evaluations use.
Loss make_distill(const Section& loss, const Task& task);

}  // namespace lockstep::models
