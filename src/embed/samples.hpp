// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/session.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::embed {

/// The same in the memory of the host. Waits for what is on a GPU.
SampleTensors on_host(SampleTensors samples);
/// @throws DataError  the model has no output of this name
const at::Tensor& output_of(const SampleTensors& outputs, const std::string& name);
/// Copies values into a tensor of the program, with its type and strides. Waits only for copies from a GPU to the host.
/// @throws DataError  the shapes differ
void write(const std::string& name, const at::Tensor& target, const at::Tensor& values);

/// The shapes and types of the samples of a session, and the batches that are made of them.
class SampleForm {
 public:
  /// @param data   section `data` with data.name=arrays
  /// @param model  whose targets are checked; outlives the object
  SampleForm(const Section& data, const Task& task, batch::Roles roles, const models::Model& model);

  /// A batch that shares memory with the tensors, as far as their types fit.
  /// @throws DataError  the fault, with the name of the value
  batch::Batch batch_of(const SampleTensors& samples, bool has_targets) const;
  /// Rows [begin, begin + count) of a batch.
  batch::Batch rows_of(const batch::Batch& batch, std::int64_t begin, std::int64_t count) const;
  /// These rows of a batch.
  batch::Batch selected(const batch::Batch& batch, const std::vector<std::int64_t>& rows) const;
  /// A batch of values that were checked before; without values it has no samples.
  batch::Batch drawn(batch::ValueMap values) const;
  /// One sample that counts in nothing, for a forward pass without samples.
  /// @param like  a batch without rows; the values that it has not are those of the roles
  batch::Batch filler(const batch::Batch& like) const;

  const batch::Roles& roles() const noexcept { return *roles_; }

 private:
  SampleTensors joined_inputs(const SampleTensors& samples) const;
  at::Tensor weights_in(const SampleTensors& samples) const;
  at::Tensor checked_target(const std::string& name, const at::Tensor& target) const;

  Task task_;
  std::vector<std::int64_t> target_shape_;
  std::vector<std::string> join_keys_;
  std::string mask_key_;
  std::string weight_key_;  // "" = samples have no weights
  std::shared_ptr<const batch::Roles> roles_;
  std::function<std::optional<data::SampleFault>(const batch::Batch&)> check_;
};

}  // namespace lockstep::embed
