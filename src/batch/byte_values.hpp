// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>

#include <c10/core/MemoryFormat.h>

namespace lockstep::batch {

/// The values of a table on a device. They are copied there once and kept as long as the table.
/// @param table  on any device; not to be changed
at::Tensor kept_on(const at::Tensor& table, at::Device device);

/// The numbers of bytes by a table. The numbers are read, not computed, so that they have the same bits on any device.
/// @param bytes   [N, C, H, W] uint8, in any order in memory
/// @param table   [C, 256] float32, on any device; not to be changed, for a copy on another device is kept
/// @param format  of the result, Contiguous or ChannelsLast
/// @return        [N, C, H, W] float32 on the device of `bytes`
at::Tensor values_of_bytes(const at::Tensor& bytes, const at::Tensor& table, at::MemoryFormat format);

/// Replaces the values with a table of Batch::byte_tables by their numbers.
/// @throws DataError  a value with a table is not a tensor
Batch with_values(Batch batch, at::MemoryFormat format);

}  // namespace lockstep::batch
