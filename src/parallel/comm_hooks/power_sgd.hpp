// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/parallel/comm_hook.hpp>

#include <cstdint>

namespace lockstep::parallel {

struct PowerSgdOptions {
  std::int64_t rank = 1;  ///< rank of the approximation; >= 1
  /// Steps of plain averages before; >= 2 with error feedback or warm start, else >= 0.
  std::int64_t start_step = 1000;
  /// A gradient is compressed if that sends this many times fewer elements; >= 0. Not for is_batched
  double min_compression_rate = 2;
  bool has_error_feedback = true;  ///< the compression error of a step is added to the next step's gradient
  bool has_warm_start = true;      ///< a step's Q begins the next; otherwise each begins at random
  bool is_batched = false;         ///< a bucket is one square matrix: fewer operations, coarser results
  std::uint64_t seed = 0;          ///< equal on every rank

  /// Options from the keys `ddp.powersgd_...`.
  static PowerSgdOptions from(const Section& ddp);
};

/// The keys `ddp.powersgd_...`.
KeySpecs power_sgd_keys();

/// Averages low-rank approximations of gradients, for networks that are slow compared to the computation.
///
/// A gradient, its first dimension against all others, is a matrix M (n x m); it is compressed where r (n + m), with
/// r = min(n, m, rank), times min_compression_rate is below n m. With an orthonormal Q (m x r) the ranks average
/// P = M Q, make it orthonormal, average Q = M^T P, and all take P Q^T. Gradients that are not compressed are averaged
/// together with P. Orthonormal columns come from a QR decomposition, which needs no care for dependent columns.
/// 16-bit buckets are worked on in float32; what travels has the bucket's type.
///
/// All ranks compute P Q^T from the same numbers: they agree bit by bit where kernels do, on processors of one kind
/// with equal numbers of threads.
///
/// State belongs to parameters, not to buckets, so it outlives their rebuilding and a restart; but Q of the batched
/// form belongs to buckets, and begins again when they change. Source: Vogels, Karimireddy, Jaggi, "PowerSGD: practical
/// low-rank gradient compression for distributed optimization", NeurIPS 2019.
/// @throws ConfigError  options out of range, or a start_step too early
ChosenHook power_sgd_hook(mpi::Collectives& collectives, const PowerSgdOptions& options);

}  // namespace lockstep::parallel
