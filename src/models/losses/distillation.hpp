// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/models/loss.hpp>

#include <ATen/core/Tensor.h>

#include <functional>

namespace lockstep::models {

/// How much a model learns from its teacher.
struct Distillation {
  double alpha = 0.5;        ///< weight of the divergence from the teacher; 1 - alpha for the targets; in [0, 1]
  double temperature = 2.0;  ///< divides the scores of both models; > 0
};

/// The scores of another model for a preprocessed batch, without gradients. They have the shape of the model's own.
using Teacher = std::function<at::Tensor(const batch::Batch& prepared)>;

/// The loss of row `distill` with its teacher, as in Hinton, Vinyals and Dean, 2015 (arXiv:1503.02531). In training:
///
///   (1 - alpha) cross-entropy(scores, target)
///     + alpha temperature^2 KL(softmax(teacher / temperature) || softmax(scores / temperature))
///
/// Both terms are means over the samples, tokens or pixels that count. In evaluations: the cross-entropy alone, without
/// a forward pass of the teacher.
/// @throws ConfigError  as the row
Loss with_teacher(const Section& loss, const Task& task, const Distillation& distillation, Teacher teacher);

}  // namespace lockstep::models
