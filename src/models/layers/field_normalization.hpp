// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/models/block.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::models {

/// The value of a batch with the inputs of the later forward passes of a rollout, [N, passes - 1, C, space...].
inline constexpr const char* kLaterInputs = "later_inputs";
/// The same, where the targets are those of the last pass alone, and no other pass has gradients.
inline constexpr const char* kSkippedInputs = "skipped_inputs";

/// Normalizes the fields that a model reads, and gives those that it computes their units back. Its buffers
/// `input_shift`, `input_scale`, `target_shift` and `target_scale`, one number for each channel, are part of a
/// checkpoint, so that predictions need no training data.
class FieldNormalization : public Block {
 public:
  /// @param dtype  of the buffers; float64 stays, everything else is float32
  FieldNormalization(const FieldScaling& scaling, at::ScalarType dtype);

  /// The input of the network: [N, C, space...] as stored -> the same shape, normalized.
  at::Tensor normalized(const at::Tensor& input) const;
  /// The values for an output of the network, [N, T * C, space...].
  /// @param input  as stored, which has the newest values that differences are added to
  at::Tensor in_units(const at::Tensor& output, const at::Tensor& input) const;
  bool has_target_scale() const { return target_scale_.defined() || scaling_.adds_steps; }
  /// The values for losses: divided by the scale of their channel. For differences of steps, those of the values.
  /// @param values  of one target, or of those of all forward passes of a rollout
  at::Tensor scaled(const at::Tensor& values, const at::Tensor& input) const;
  /// The next input of a rollout: that of the files, with the predictions in place of the steps that they predict. Gaps
  /// of the input before stay gaps.
  /// @param stored   the next input as it is in the files
  /// @param before   the input before, as it was used
  /// @param outputs  of all forward passes until now, in units, oldest first
  at::Tensor next_input(const at::Tensor& stored, const at::Tensor& before,
                        const std::vector<at::Tensor>& outputs) const;

  at::Tensor forward(const at::Tensor& input) override { return normalized(input); }

 private:
  at::Tensor register_numbers(const std::string& name, const std::vector<double>& numbers, at::ScalarType dtype);
  at::Tensor newest_of(const at::Tensor& input) const;
  at::Tensor step_of(const std::vector<at::Tensor>& outputs, std::int64_t step) const;

  at::Tensor rates_;  // undefined tensors = this part is not done
  at::Tensor input_shift_;
  at::Tensor input_scale_;
  at::Tensor target_shift_;
  at::Tensor target_scale_;
  at::Tensor newest_;  // [C] int64: the channels of the newest step of the input
  FieldScaling scaling_;
};

}  // namespace lockstep::models
