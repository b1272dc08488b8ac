// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/keys/cited.hpp"

namespace lockstep::engine {

/// The settings of the whole process, from section `run`.
struct RunSettings {
  std::string dir = "";  ///< folder of everything that the run writes
  std::uint64_t seed = 1;
  std::string device = "auto";  ///< auto, cpu or cuda
  int threads = 0;              ///< threads for computing; 0 = see set_threads
  bool is_deterministic = false;
  bool has_cudnn_benchmark = false;
  bool draws_by_rank = true;                   ///< ranks draw different dropout
  bool uses_cuda_graphs = false;               ///< steps are captured where that is possible
  Cited<std::string> tf32 = {"convolutions"};  ///< convolutions, all or none: products of float32 that GPUs round
  bool binds_near_gpu = true;                  ///< a rank with a GPU that its launcher has not bound is bound near it
  std::uint64_t max_open_files = 4096;
  std::optional<double> peak_flops = {};  ///< FLOP/s of one device at its peak; 0 = utilization is off; none = measured
  std::map<std::string, std::string> extra = {};  ///< data of the user, stored in every checkpoint

  /// All keys of section `run`; run.name is read by the program.
  static KeySpecs keys();
  static RunSettings from(const Section& run);
  bool operator==(const RunSettings&) const = default;
};

}  // namespace lockstep::engine
