// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::mpi {

/// The backends that can serve this many ranks of one host.
inline std::vector<std::string> backends_for(int world_size) {
  if (world_size == 1) return {"self", "shm", "mpi"};
  return {"shm", "mpi"};
}

/// Runs `body(collectives, world)` once per backend. Collective.
template <class Body>
void with_every_backend(Body body) {
  const auto world = Communicator::world();
  for (const std::string& backend : backends_for(world.size())) {
    SCOPED_TRACE(backend);
    const auto collectives = make_collectives(world, {.backend = backend, .timeout_s = 60});
    EXPECT_EQ(collectives->name(), backend);
    EXPECT_EQ(collectives->rank(), world.rank());
    EXPECT_EQ(collectives->world_size(), world.size());
    body(*collectives, world);
  }
}

}  // namespace lockstep::mpi
