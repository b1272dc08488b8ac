// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace lockstep::data {

/// Times of samples that were loaded. One of 64 samples is measured.
struct LoadTimes {
  std::int64_t samples = 0;      ///< that were measured
  double read_seconds = 0;       ///< reading stored bytes
  double decode_seconds = 0;     ///< reading the header and decoding
  double transform_seconds = 0;  ///< transforms, and writing to the batch

  double seconds() const { return read_seconds + decode_seconds + transform_seconds; }
  /// The times between an earlier state of the same counters and this one.
  LoadTimes since(const LoadTimes& before) const {
    return {samples - before.samples, read_seconds - before.read_seconds, decode_seconds - before.decode_seconds,
            transform_seconds - before.transform_seconds};
  }
};

}  // namespace lockstep::data
