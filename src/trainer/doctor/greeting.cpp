// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/doctor/greeting.hpp"

#include <lockstep/log/log.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>

#include "core/system/process.hpp"
#include "core/text/duration.hpp"
#include "core/text/text.hpp"
#include "trainer/doctor/findings.hpp"

namespace lockstep::trainer {

namespace {

constexpr double kAnswerLimit = 8;  // seconds; TCP repeats a lost connection request after 1, 3 and 7 s
constexpr double kLead = 4;         // seconds by which rank 0 is ahead of the others: mpirun ends them meanwhile

int own_rank() {
  int rank = 0;
  mpi::check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  return rank;
}

std::vector<int> greeted_ranks() {
  int size = 1;
  mpi::check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  const int rank = own_rank();
  std::vector<int> others;
  for (int other = 0; other < size; ++other) {
    const bool is_neighbor = other == rank - 1 || other == rank + 1;
    if (other != rank && (rank == 0 || other == 0 || is_neighbor)) others.push_back(other);
  }
  return others;
}

/// "rank 1", "ranks 1, 2, 3 and others".
std::string text_of_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> names;
  for (const int rank : ranks) {
    if (names.size() < kShown) names.push_back(std::to_string(rank));
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + joined(names) + (ranks.size() > kShown ? " and others" : "");
}

}  // namespace

std::vector<int> silent_ranks(double limit_s) {
  static constexpr std::byte kWord{};
  static std::vector<std::byte> answers;  // those that are under way when this returns still need their memory
  const std::vector<int> others = greeted_ranks();
  answers.resize(others.size());
  std::vector<MPI_Request> receives(others.size(), MPI_REQUEST_NULL);
  std::vector<MPI_Request> sends(others.size(), MPI_REQUEST_NULL);
  for (std::size_t i = 0; i < others.size(); ++i) {
    mpi::check(MPI_Irecv(&answers[i], 1, MPI_BYTE, others[i], 0, MPI_COMM_WORLD, &receives[i]), "MPI_Irecv");
    mpi::check(MPI_Isend(&kWord, 1, MPI_BYTE, others[i], 0, MPI_COMM_WORLD, &sends[i]), "MPI_Isend");
  }
  const SteadyClock::time_point start = SteadyClock::now();
  while (true) {
    std::vector<int> silent;
    bool has_failed = false;
    for (std::size_t i = 0; i < others.size(); ++i) {
      int has_come = 0;
      if (MPI_Test(&receives[i], &has_come, MPI_STATUS_IGNORE) != MPI_SUCCESS) has_failed = true;
      if (has_come == 0) silent.push_back(others[i]);
    }
    if (silent.empty()) {
      mpi::check(MPI_Waitall(static_cast<int>(sends.size()), sends.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
      return silent;
    }
    if (has_failed || seconds_since(start) > limit_s) return silent;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void require_answers(bool is_json) {
  const int rank = own_rank();
  const std::vector<int> silent = silent_ranks(kAnswerLimit + (rank == 0 ? 0 : kLead));
  if (silent.empty()) return;
  const Finding finding = {
      .subject = "network",
      .verdict = Verdict::fault,
      .evidence = "rank " + std::to_string(rank) + " on " + host_name() + " has no answer from " +
                  text_of_ranks(silent) + " within " + number_text(kAnswerLimit) +
                  " s: a firewall blocks the connection, or MPI uses a network that the hosts do not share",
      .remedy =
          "open the ports of MPI between the hosts, and choose their common network: mpirun --mca "
          "btl_tcp_if_include NAME --mca btl_tcp_port_min_v4 46000 --mca btl_tcp_port_range_v4 1000"};
  log::result(is_json ? json_of({finding}) : text_of({finding}));
  log::flush();
  mpi::Environment::abort(ExitCode::configuration);
}

}  // namespace lockstep::trainer
