// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>

#include "parallel/store/parameter_store.hpp"

namespace lockstep::engine {

/// That all ranks hold the same parameters, bit for bit: what differs must not be saved over what is good. Ranks that
/// share their parameters compare nothing. On the CPU, digests are compared, on a GPU integer_sums of each block, for
/// which the host waits once. Collective.
/// @throws CommError  the first parameter that differs, and on which ranks; on every rank
void require_equal_replicas(const mpi::Communicator& world, const parallel::ParameterStore& store);

/// Two sums over the bits of a piece of memory, computed where it lies, for a comparison of copies.
///
/// The memory is a table of 32-bit words. The first sum adds up the sums of the rows, each times its odd number 1, 3,
/// 5, ..., the second one those of the columns, modulo 2^64. One word that differs is always found, as are two words
/// that were exchanged. Differences in several words are missed where they cancel in both sums: one in 2^128 if they
/// are random, and four equal ones of alternating sign at the corners of a rectangle of the table.
/// @param memory  a multiple of 4 bytes on `device`
/// @return        [2] int64 on `device`; the host does not wait for it
at::Tensor integer_sums(std::span<std::byte> memory, at::Device device);

}  // namespace lockstep::engine
