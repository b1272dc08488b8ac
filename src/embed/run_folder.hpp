// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/hook.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <exception>
#include <memory>
#include <string>

#include "config/config.hpp"
#include "engine/session.hpp"

namespace lockstep::checkpoints {
class Lease;
}
namespace lockstep::trainer {
class RunReport;
}

namespace lockstep::embed {

/// The output of a run of a session, like that of `trainer`: a folder with logs, records, report and checkpoints. There
/// is none if run.dir is not set.
class RunFolder {
 public:
  /// Makes the folder and directs the messages of the process there; none go to the console. Collective.
  /// @throws ConfigError, CheckpointError  the folder cannot be made, or another run writes there; on every rank
  RunFolder(const mpi::Communicator& world, const config::Config& config);
  ~RunFolder();

  bool is_there() const noexcept { return !path_.empty(); }
  /// Adds the checkpoint directory and the reporters of the run. The folder outlives the training.
  void prepare(engine::TrainRequest& request) const;
  /// The last words of the report.
  void end(engine::Outcome outcome) noexcept;
  void fail(const std::exception& failure, int exit_code) noexcept;

  std::string checkpoints() const { return path_ + "/ckpt"; }

 private:
  std::string path_;
  std::string environment_;
  std::shared_ptr<checkpoints::Lease> lease_;
  std::unique_ptr<trainer::RunReport> report_;  // on rank 0
};

}  // namespace lockstep::embed
