// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "mpi/shared/device_collectives.hpp"

namespace lockstep::mpi {

/// The backends that can serve this many ranks of one host.
inline std::vector<std::string> backends_for(int world_size) {
  if (world_size == 1) return {"self", "shm", "mpi", "hierarchical"};
  return {"shm", "mpi", "hierarchical"};
}

/// A backend for the ranks of `world`. Several ranks are two hosts to the hierarchical one.
inline std::unique_ptr<Collectives> make_backend(const Communicator& world, const std::string& backend,
                                                 double timeout_s = 60) {
  const int hosts = backend == "hierarchical" ? std::min(world.size(), 2) : 0;
  return make_collectives(world, {.backend = backend, .timeout_s = timeout_s, .hosts = hosts});
}

/// Runs `body(collectives, world)` once per backend. Collective.
template <class Body>
void with_every_backend(Body body) {
  const auto world = Communicator::world();
  for (const std::string& backend : backends_for(world.size())) {
    SCOPED_TRACE(backend);
    const auto collectives = make_backend(world, backend);
    EXPECT_EQ(collectives->name(), backend);
    EXPECT_EQ(collectives->rank(), world.rank());
    EXPECT_EQ(collectives->world_size(), world.size());
    EXPECT_FALSE(has_device_buckets(*collectives));
    body(*collectives, world);
  }
}

}  // namespace lockstep::mpi
