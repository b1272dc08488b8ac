// SPDX-License-Identifier: BSD-3-Clause
#include "engine/evaluation/bad_samples.hpp"

#include <algorithm>
#include <string>

namespace lockstep::engine {

std::vector<std::pair<int, data::BadSample>> gather_bad_samples(const mpi::Communicator& world,
                                                                data::SampleErrors& errors) {
  std::string mine;  // names and reasons, each with a zero byte at its end
  for (const data::BadSample& sample : errors.take_new()) mine += sample.name + '\0' + sample.reason + '\0';
  std::vector<std::pair<int, data::BadSample>> all;
  const std::vector<std::string> parts = world.all_gather(mine);
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const std::string& part = parts[rank];
    for (std::size_t begin = 0; begin < part.size();) {
      const std::size_t name_end = part.find('\0', begin);
      const std::size_t reason_end = part.find('\0', name_end + 1);
      all.emplace_back(static_cast<int>(rank), data::BadSample{part.substr(begin, name_end - begin),
                                                               part.substr(name_end + 1, reason_end - name_end - 1)});
      begin = reason_end + 1;
    }
  }
  return all;
}

}  // namespace lockstep::engine
