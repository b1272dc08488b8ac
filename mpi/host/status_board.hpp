// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/system/status_line.hpp"
#include "mpi/host/shared_region.hpp"
#include "mpi/shared/rendezvous.hpp"

namespace lockstep::mpi {

/// The memory in which the ranks of one host see each other's status lines, also those of ranks that are late, stopped
/// or dead. A rank can ask all others a question, which a thread of each answers with a text, and one failure of the
/// run is noted. Members other than the constructor are not collective and never wait for a rank.
class StatusBoard {
 public:
  static constexpr std::size_t kAnswerBytes = 1 << 16;

  /// The failure of a run: the first that a rank notes counts.
  struct NotedFailure {
    int rank = 0;  ///< its place on this host
    ExitCode code = ExitCode::communication;
    std::string message = {};
  };

  /// Makes this process write its status there from now on. Collective over `host`.
  explicit StatusBoard(Communicator host);
  StatusBoard(const StatusBoard&) = delete;
  StatusBoard& operator=(const StatusBoard&) = delete;
  ~StatusBoard();  ///< says that this rank has ended

  const Communicator& host() const noexcept { return host_; }
  int rank() const noexcept { return host_.rank(); }
  int size() const noexcept { return host_.size(); }
  StatusLine& line(int rank) const noexcept { return lines_[static_cast<std::size_t>(rank)]; }

  bool is_dead(int rank) const { return watch_->is_dead(rank); }

  /// A new question. Its number.
  std::uint64_t ask();
  /// The last question that was asked.
  std::uint64_t asked() const;
  /// @param text  cut off behind kAnswerBytes
  void answer(std::uint64_t question, const std::string& text);
  /// The answer of a rank, once it is there.
  std::optional<std::string> answer_of(int rank, std::uint64_t question) const;

  /// @return  false = another rank has noted one before
  bool note_failure(const NotedFailure& failure) noexcept;
  std::optional<NotedFailure> failure() const;
  /// The verdict on the failure, for all ranks: the first counts.
  /// @param rank  that gives it; -1 = one of another host
  void conclude(const std::string& verdict, int rank) noexcept;
  /// The verdict, in place of a message, and the rank that gave it.
  std::optional<NotedFailure> verdict() const;

 private:
  struct Board;

  Communicator host_;
  SharedRegion memory_;
  Board* board_;
  std::span<StatusLine> lines_;
  std::span<char> answers_;
  std::unique_ptr<PeerWatch> watch_;
};

/// "all_reduce #17": a call in a status line; "" = there was none.
std::string call_text(std::uint64_t call);

}  // namespace lockstep::mpi
