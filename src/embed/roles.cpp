// SPDX-License-Identifier: BSD-3-Clause
#include "embed/roles.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <map>
#include <string>

#include "mpi/process/topology.hpp"

namespace lockstep::embed {

bool RankRoles::has_producers() const { return std::ranges::find(is_producer, true) != is_producer.end(); }

std::vector<int> RankRoles::receivers(bool by_host) const {
  constexpr int kAnywhere = -1;
  std::map<int, std::vector<int>> trainers;  // ranks of each host
  for (std::size_t rank = 0; rank < is_producer.size(); ++rank) {
    if (is_producer[rank]) continue;
    trainers[host_of_rank[rank]].push_back(static_cast<int>(rank));
    trainers[kAnywhere].push_back(static_cast<int>(rank));
  }
  std::map<int, std::size_t> turns;
  std::vector<int> receivers(is_producer.size(), -1);
  for (std::size_t rank = 0; rank < is_producer.size(); ++rank) {
    if (!is_producer[rank]) continue;
    const int host = by_host && trainers.contains(host_of_rank[rank]) ? host_of_rank[rank] : kAnywhere;
    const std::vector<int>& choice = trainers.at(host);
    receivers[rank] = choice[turns[host]++ % choice.size()];
  }
  return receivers;
}

RankRoles agree_on_roles(const mpi::Communicator& all, bool is_producer) {
  RankRoles roles;
  for (const std::string& role : all.all_gather(is_producer ? "producer" : "trainer")) {
    roles.is_producer.push_back(role == "producer");
  }
  if (!roles.has_producers()) return roles;
  if (std::ranges::find(roles.is_producer, false) == roles.is_producer.end()) {
    throw_agreed(ExitCode::configuration,
                 "every rank is a producer (embed.role=producer), so that none trains; leave embed.role out on the "
                 "ranks that train");
  }
  roles.host_of_rank = mpi::Topology::of(all).host_of_rank;
  return roles;
}

}  // namespace lockstep::embed
