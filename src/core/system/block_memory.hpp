// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// The memory that the blocks of a model take in this process, to explain a lack of memory.
namespace lockstep {

struct BlockMemory {
  std::string block;         ///< path in the model; "model" = outside of all other blocks
  double parameters_mb = 0;  ///< parameters, in MB of 2^20 bytes, without those of blocks inside
  /// The growth of the resident memory during the first forward pass, likewise. Memory that the allocator used again is
  /// missing.
  double forward_mb = 0;
};

/// Adds to the parameters of a block. From any thread.
/// @param block  path; "" = the model itself
void note_parameters(const std::string& block, std::int64_t bytes);

/// Measures the growth of the memory during the first forward pass of this process: the first measurement that is
/// wanted does so while it exists, all others do nothing.
class GrowthMeasurement {
 public:
  explicit GrowthMeasurement(bool is_wanted) noexcept;
  GrowthMeasurement(const GrowthMeasurement&) = delete;
  GrowthMeasurement& operator=(const GrowthMeasurement&) = delete;
  ~GrowthMeasurement();

 private:
  bool is_first_;
};

/// Counts the growth since the last call for this block, if it is measured on this thread.
/// @param block  path; null = none
void count_growth(const char* block) noexcept;

/// The blocks with the largest memory, each with 1 MB or more, in descending order. From any thread.
std::vector<BlockMemory> largest_blocks(std::size_t count);

/// "conv1 (parameters 2 MiB, first forward pass 512 MiB)".
std::string text_of(const BlockMemory& memory);

}  // namespace lockstep
