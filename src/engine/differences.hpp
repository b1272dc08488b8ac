// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/tensor_fwd.hpp>

#include <set>
#include <string>
#include <vector>

namespace lockstep::engine {

// What lets a run go on all the same.
inline const std::string kPartial = "resume.partial=model";
inline const std::string kRename = "resume.rename=FROM=TO";
inline const std::string kResetOptim = "resume.reset=optim";
inline const std::string kResetSampler = "resume.reset=sampler";
inline const std::string kResetRng = "resume.reset=rng";
inline const std::string kResetAverage = "resume.reset=ema";

/// Whether a stored array has the shape and type of a tensor of the run.
bool fits(const checkpoints::Array& saved, const Tensor& live);

/// Collects what does not fit, for one message that says it all.
class Differences {
 public:
  /// @param archive  outlives it
  explicit Differences(const checkpoints::Archive& archive) : archive_(&archive) {}

  /// @param remedy  a setting with which the run goes on all the same, or ""
  void add(const std::string& difference, const std::string& remedy = "");
  /// @param unused  stored names that the run does not have: one of them may be another spelling of a missing one
  void expect_array(const std::string& at, const Tensor& live, const std::string& remedy,
                    const std::vector<std::string>& unused = {});

  /// All of them, for the log.
  const std::vector<std::string>& all() const noexcept { return all_; }
  /// @throws CheckpointError  there is any
  void throw_if_any() const;

 private:
  const checkpoints::Archive* archive_;
  std::vector<std::string> all_;
  std::set<std::string> remedies_;
};

}  // namespace lockstep::engine
