// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/affinity.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <sched.h>

namespace lockstep::mpi {

std::string affinity_mask() {
  constexpr std::size_t kMaxBytes = 1 << 16;
  for (std::size_t bytes = sizeof(cpu_set_t); bytes <= kMaxBytes; bytes *= 2) {
    std::string mask(bytes, '\0');
    if (sched_getaffinity(0, bytes, reinterpret_cast<cpu_set_t*>(mask.data())) == 0) return mask;
    if (errno != EINVAL) break;  // EINVAL: the kernel knows more processors than the mask has bits
  }
  return std::string(1, '\1');
}

std::string union_of(std::string mask, const std::string& other) {
  mask.resize(std::max(mask.size(), other.size()), '\0');
  for (std::size_t i = 0; i < other.size(); ++i) mask[i] = static_cast<char>(mask[i] | other[i]);
  return mask;
}

int count_cpus(const std::string& mask) {
  int cpus = 0;
  for (const char bits : mask) cpus += std::popcount(static_cast<unsigned char>(bits));
  return std::max(cpus, 1);
}

}  // namespace lockstep::mpi
