// SPDX-License-Identifier: BSD-3-Clause
#include "embed/transit.hpp"

#include <string>
#include <vector>

namespace lockstep::embed {

Transit::Transit(const mpi::Communicator& all, bool is_producer)
    : all_(&all), roles_(agree_on_roles(all, is_producer)) {
  if (!roles_.has_producers()) return;
  mail_.emplace(all, roles_.host_of_rank);
  trainers_.emplace(all.split(is_producer ? 1 : 0, all.rank()));
  if (is_producer) trainers_.emplace(mpi::Communicator::alone());
}

void Transit::connect(std::int64_t lanes, const engine::BufferSettings& settings, double timeout_s) {
  const std::vector<int> receivers = roles_.receivers(settings.routes_by_host);
  const std::vector<std::string> lane_counts = all_->all_gather(std::to_string(lanes));
  std::vector<int> receiver_of_lane;  // ranks that train have increasing lanes
  std::vector<int> served;
  for (int rank = 0; rank < all_->size(); ++rank) {
    const auto place = static_cast<std::size_t>(rank);
    receiver_of_lane.insert(receiver_of_lane.end(), std::stoul(lane_counts[place]), rank);
    if (receivers[place] == all_->rank()) served.push_back(rank);
  }
  const auto mine = static_cast<std::size_t>(all_->rank());
  if (!roles_.is_producer[mine]) {
    receiver_ = std::make_unique<Receiver>(*mail_, served);
    return;
  }
  producer_ = std::make_unique<Producer>(*mail_, Producer::ProducerOptions{.receiver = receivers[mine],
                                                                           .receiver_of_lane = receiver_of_lane,
                                                                           .window_bytes = settings.window_bytes,
                                                                           .drops_when_full = settings.drops_when_full,
                                                                           .timeout_s = timeout_s});
}

}  // namespace lockstep::embed
