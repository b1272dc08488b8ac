// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <string>

// The paths of the state of a run in an archive. checkpoints/FORMAT.md is normative.
namespace lockstep::engine {

inline const std::string kModel = "/model";
inline const std::string kParameters = kModel + "/params";
inline const std::string kBuffers = kModel + "/buffers";
inline const std::string kAverage = "/ema";
inline const std::string kAverageParameters = kAverage + "/params";
inline const std::string kAverageBuffers = kAverage + "/buffers";
inline const std::string kOptimizers = "/optim";
inline const std::string kOptimizer = kOptimizers + "/0";
inline const std::string kScaler = "/scaler";
inline const std::string kSampler = "/sampler";
inline const std::string kSchedules = "/sched";
inline const std::string kSchedule = kSchedules + "/0";
inline const std::string kGenerators = "/rng/cpu";
inline const std::string kExtra = "/extra";
inline const std::string kHooks = "/hooks";
inline const std::string kCommHook = "/comm/hook";
inline const std::string kBuckets = "/comm/buckets";

inline std::string path(const std::string& group, const std::string& name) {
  return group + "/" + checkpoints::encode_name(name);
}

}  // namespace lockstep::engine
