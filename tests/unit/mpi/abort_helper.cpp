// SPDX-License-Identifier: BSD-3-Clause
// A rank whose NCCL reports an error and then does not return from the abort.
#include <lockstep/mpi/communicator.hpp>

#include <chrono>
#include <thread>

#include "mpi/gpu/nccl_link.hpp"
#include "support/stand_in_gpu.hpp"

int main(int argc, char** argv) {
  using namespace lockstep;
  mpi::Environment environment(&argc, &argv);
  const auto world = mpi::Communicator::world();
  testing::stand_in().abort_seconds = 3600;
  mpi::NcclLink link(world, testing::stand_in_gpu(), {.abort_limit_s = 0.2});
  testing::set_stand_in_fault("remote process exited");
  std::this_thread::sleep_for(std::chrono::seconds(60));
}
