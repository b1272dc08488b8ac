// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>
#include <lockstep/models/model.hpp>

namespace lockstep::parallel {

/// The batch as a model receives it: bytes of images replaced by their numbers (Batch::byte_tables), then
/// models::Model::preprocess with gradients off, then the tensors of floating-point inputs in the type `dtype`.
/// @param placed  the batch on `device`, as batch::scatter makes it
/// @throws DataError  the model rejects the batch
batch::Batch prepared_batch(const models::Model& model, batch::Batch placed, bool is_training, at::Device device,
                            at::ScalarType dtype);

}  // namespace lockstep::parallel
