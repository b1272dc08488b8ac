// SPDX-License-Identifier: BSD-3-Clause
// Small sessions, and samples that depend on their number only.
#pragma once

#include <lockstep/mpi/communicator.hpp>
#include <lockstep/session.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "support/temporary_folder.hpp"

namespace lockstep::testing {

using SessionSettings = std::vector<std::string>;

/// An mlp from 3 numbers to 2.
inline SessionSettings small_settings(const SessionSettings& more = {}) {
  SessionSettings settings = {"model.name=mlp",     "model.hidden=5",      "model.activation=tanh",
                              "data.input_shape=3", "data.target_shape=2", "optim.name=sgd",
                              "optim.lr=0.1",       "run.threads=1",       "comm.timeout_s=60"};
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

/// Samples [begin, begin + count) of an endless sequence.
inline SampleTensors samples(std::int64_t begin, std::int64_t count) {
  const at::Tensor number = at::arange(begin, begin + count, at::kDouble).unsqueeze(1);
  const at::Tensor input = at::sin(number * at::arange(1, 4, at::kDouble));
  const at::Tensor target = at::cos(number * at::arange(1, 3, at::kDouble));
  return {{"input", input.to(at::kFloat)}, {"target", target.to(at::kFloat)}};
}

/// All parameters in one vector.
inline at::Tensor parameters_of(const Session& session) {
  std::vector<at::Tensor> all;
  for (const std::string& name : session.parameter_names()) all.push_back(session.parameter(name).flatten());
  return at::cat(all);
}

inline void expect_same_bits(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_TRUE(at::equal(a, b)) << "largest difference " << (a - b).abs().max().item<double>();
}

/// One folder for all ranks.
class SharedFolder {
 public:
  explicit SharedFolder(const mpi::Communicator& world) : world_(world.handle()) {
    path_ = world_.broadcast(world_.is_root() ? own_.path() : "");
  }
  ~SharedFolder() { world_.barrier(); }
  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  TemporaryFolder own_;  // that of rank 0 is used
  mpi::Communicator world_;
  std::string path_;
};

}  // namespace lockstep::testing
