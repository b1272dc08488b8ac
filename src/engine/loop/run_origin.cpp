// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loop/run_origin.hpp"

#include <cstdio>
#include <random>

namespace lockstep::engine {

std::string new_run_id(const mpi::Communicator& world) {
  std::random_device entropy;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", entropy(), entropy());
  return world.broadcast(std::string(text));
}

}  // namespace lockstep::engine
