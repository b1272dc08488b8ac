// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/image.hpp>

#include <string>
#include <vector>

#include "data/transforms/pipeline.hpp"

namespace lockstep::trainer {

/// Images per second of a number of threads.
struct LoadingSpeed {
  int threads = 1;
  double read = 0;       ///< only reading
  double decode = 0;     ///< only decoding whole images from memory
  double transform = 0;  ///< only transforming decoded images
  double together = 0;   ///< all three as the loader does it; parts that no transform uses are not decoded
};

/// Measures 1, 2, 4, ... threads, up to the processors of this process.
/// @param seconds  in all
std::vector<LoadingSpeed> loading_speeds(const data::ImageStore& store, const data::Pipeline& pipeline,
                                         const data::PipelineOptions& how, double seconds);

/// The part that limits the speed, in one or two sentences.
std::string verdict_on(const std::vector<LoadingSpeed>& speeds);

}  // namespace lockstep::trainer
