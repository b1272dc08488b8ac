// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::fake_gpu::nccl {

/// The place where the ranks of one communicator meet: anonymous shared memory of the process that makes it, which the
/// others open by its entry in /proc. It has no name, so nothing is left behind however a process ends, and no later
/// run can find what belongs to another. Travels inside an ncclUniqueId.
struct Place {
  std::int64_t pid = 0;
  std::int64_t descriptor = -1;
  std::uint64_t device = 0;  ///< identifies the memory, with `inode`: process ids and descriptors are used again
  std::uint64_t inode = 0;
};

/// @throws Refusal  the system has no memory or no descriptor left
Place make_place(std::size_t bytes);

/// @return  zeroed memory of the place that all its ranks share; to be given to munmap
/// @throws Refusal  the place is gone: its process ended, or all its ranks have met and left
void* open_place(const Place& place, std::size_t bytes);

/// No rank opens the place from now on. Has no effect in a process that did not make it.
void release_place(const Place& place);

}  // namespace lockstep::fake_gpu::nccl
