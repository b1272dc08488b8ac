// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/reducers/node_row.hpp"

namespace lockstep::parallel {

NodeRow::NodeRow(DType dtype, std::int64_t count, int nodes, mpi::Collectives& collectives)
    : dtype_(dtype), count_(static_cast<std::size_t>(count)) {
  const std::size_t line = 64 / size_of(dtype);
  stride_ = (count_ + line - 1) / line * line;
  memory_ = collectives.allocate_bucket(stride_ * static_cast<std::size_t>(nodes) * size_of(dtype));
}

void NodeRow::fold(mpi::LaneTree::Step step) const {
  mpi::fold_lane(step, memory_.bytes.data(), count_, stride_, dtype_);
}

mpi::Ticket NodeRow::start(mpi::Collectives& collectives, const mpi::LaneTree& tree, bool by_ranges) const {
  void* const nodes = memory_.bytes.data();
  return by_ranges ? collectives.start_lane_ranges(nodes, count_, stride_, dtype_, mpi::ReduceOp::average, tree)
                   : collectives.start_lane_reduce(nodes, count_, stride_, dtype_, mpi::ReduceOp::average, tree);
}

}  // namespace lockstep::parallel
