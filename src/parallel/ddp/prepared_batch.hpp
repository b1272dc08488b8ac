// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/models/model.hpp>

namespace lockstep::parallel {

/// What a model receives of a batch: tensors on `device`, containers replaced by what they hold, bytes of images
/// replaced by their numbers (Batch::byte_tables), then models::Model::preprocess with gradients off, then the tensors
/// of floating-point inputs in the type `dtype`.
/// @throws DataError  a container contains several groups, or the model rejects the batch
batch::Batch prepared_batch(const models::Model& model, const batch::Batch& batch, bool is_training, at::Device device,
                            at::ScalarType dtype);

}  // namespace lockstep::parallel
