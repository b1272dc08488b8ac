// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "mpi/host/status_board.hpp"
#include "mpi/shared/rank_mail.hpp"
#include "trainer/failure/rank_state.hpp"

namespace lockstep::trainer {

/// Explains on one page why a run fails, or what it does: failure.json and failure.html when ranks are dead, stopped or
/// late or fail themselves, dump.json and dump.html of a run that continues when the file DUMP appears in its folder.
///
/// A thread of each rank looks at the others of its host, so that it does not matter what the rank itself is doing. The
/// lowest rank of a host that is neither dead nor stopped speaks for all, and asks the other hosts.
class FailureScreen {
 public:
  /// Warns about ranks with another configuration or another program. Collective.
  /// @param configuration  the resolved one, as an INI file
  /// @param timeout_s      after so many seconds a rank is late
  /// @param heals          the other ranks continue when one has died: a death alone is no failure
  FailureScreen(const mpi::Communicator& world, std::string folder, const std::string& configuration, double timeout_s,
                bool heals = false);
  FailureScreen(const FailureScreen&) = delete;
  FailureScreen& operator=(const FailureScreen&) = delete;
  ~FailureScreen();

  /// Whether the ranks see each other's state; else there was no memory for it, and all members do nothing.
  bool is_on() const noexcept { return board_ != nullptr; }
  /// Whether another rank has written the files of the failure: this one was stopped, and goes on while the job ends.
  bool is_told_by_another() const;

  /// Completes the files of a failure of this rank, once failure.json is there on rank 0, and prints the verdict. Waits
  /// for the rank that speaks, at most 3 s.
  /// @return  whether the message of the error has been printed here, because the verdict had to follow it
  bool conclude(ExitCode code, const std::string& message, bool is_agreed, bool is_remote);

 private:
  void warn_of_differences(const std::string& configuration);
  void watch();
  void look(bool looks_at_files);
  void answer_if_asked();
  bool is_alive(int local_rank) const;
  bool speaks() const;
  /// The local rank of one that has died without a word; -1 = none.
  int dead_rank() const;
  bool is_dump_wanted() const;
  void dump();
  void look_for_long_agreement();
  void show_failure();
  void write_failure() const;
  void read_mail();
  void send(int kind, const std::string& text);
  std::vector<RankState> gather_here();
  std::vector<RankState> gather();
  RankState state_of(int local_rank, std::uint64_t question) const;

  const mpi::Communicator& world_;
  std::string folder_;
  double timeout_s_;
  bool heals_;
  std::vector<std::string> hosts_;             ///< names, by rank of the world
  std::vector<std::uint64_t> configurations_;  ///< likewise
  std::vector<std::uint64_t> programs_;        ///< likewise
  std::unique_ptr<mpi::StatusBoard> board_;    ///< null = there is no memory for it, and this does nothing
  std::optional<mpi::RankMail> mail_;          ///< none = there is one host
  std::vector<int> leaders_;                   ///< lowest ranks of the other hosts
  std::vector<std::string> from_hosts_;        ///< answers of other hosts to the last question
  std::int64_t question_ = 0;                  ///< number of that question
  std::vector<int> ranks_here_;                ///< ranks of this host, in the order of the board
  std::int64_t memory_kills_ = 0;              ///< number before the run

  // Written by the thread before the verdict is on the board.
  std::string verdict_;
  std::string ranks_json_;
  mpi::StatusBoard::NotedFailure failure_;
  std::string page_;
  std::int64_t completed_steps_ = 0;

  std::atomic<bool> is_failing_{false};  ///< the training thread has come to conclude
  std::uint64_t answered_ = 0;
  std::uint64_t reported_wait_ = 0;  ///< place of a long wait that has been reported
  int stopped_looks_ = 0;            ///< looks in a row at which a rank was stopped while others waited
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> is_stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep::trainer
