// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <memory>
#include <span>
#include <vector>

namespace lockstep::mpi {

/// An all_gather that continues while its ranks do something else. It gets on in calls of is_done.
class PendingAllGather {
 public:
  /// Collective: all ranks of `world` start the same ones in one order, but none waits here.
  /// @param world  used for nothing else meanwhile
  /// @param mine   as many on every rank
  PendingAllGather(const Communicator& world, std::vector<double> mine);
  /// The work that is not done then is left to MPI, memory too: the job is about to end.
  ~PendingAllGather();
  PendingAllGather(PendingAllGather&& other) noexcept;
  PendingAllGather& operator=(PendingAllGather&& other) noexcept;

  /// Whether the numbers of all ranks are here. Does not wait; not collective.
  bool is_done();
  /// Waits for them: [size, count], in rank order. They live as long as this. All ranks must come here or to is_done.
  std::span<const double> wait();

 private:
  /// The memory to which MPI writes: it stays where it is.
  struct Gathering {
    std::vector<double> mine;
    std::vector<double> all;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  std::unique_ptr<Gathering> gathering_;
};

}  // namespace lockstep::mpi
