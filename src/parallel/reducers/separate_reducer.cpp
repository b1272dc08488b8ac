// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/reducers/separate_reducer.hpp"

#include <utility>

namespace lockstep::parallel {

SeparateReducer::SeparateReducer(const std::vector<NamedParameter>& parameters, const ReducerOptions& options,
                                 mpi::Collectives& collectives, const mpi::Communicator& world) {
  std::vector<std::vector<NamedParameter>> by_part;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::size_t part = parameters[i].part;
    if (part >= by_part.size()) {
      by_part.resize(part + 1);
      parts_.resize(part + 1);
    }
    positions_.push_back({part, by_part[part].size()});
    parts_[part].members.push_back(i);
    by_part[part].push_back(parameters[i]);
  }
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    parts_[p].collectives = collectives.split(0);
    parts_[p].reducer = std::make_unique<BucketReducer>(std::move(by_part[p]), options, *parts_[p].collectives, world);
  }
}

/// Reducers of parts that are not prepared return the outputs unchanged.
std::vector<at::Tensor> SeparateReducer::watch(std::vector<at::Tensor> outputs) {
  for (const ChildReducer& part : parts_) outputs = part.reducer->watch(std::move(outputs));
  return outputs;
}

BucketReport SeparateReducer::report() const {
  BucketReport all;
  all.use_counts.resize(positions_.size());
  for (const ChildReducer& part : parts_) {
    const BucketReport report = part.reducer->report();
    for (Bucket bucket : report.buckets) {
      for (Slot& slot : bucket.slots) slot.parameter = part.members[slot.parameter];
      all.buckets.push_back(std::move(bucket));
    }
    all.is_rebuilt = all.is_rebuilt || report.is_rebuilt;
    all.could_be_static = all.could_be_static && report.could_be_static;
    for (std::size_t i = 0; i < report.use_counts.size(); ++i) all.use_counts[part.members[i]] = report.use_counts[i];
  }
  return all;
}

BucketLayout SeparateReducer::learned_layout() const {
  BucketLayout all;
  for (const ChildReducer& part : parts_) {
    const BucketLayout layout = part.reducer->learned_layout();
    if (layout.empty()) return {};
    for (std::vector<std::size_t> bucket : layout) {
      for (std::size_t& parameter : bucket) parameter = part.members[parameter];
      all.push_back(std::move(bucket));
    }
  }
  return all;
}

bool SeparateReducer::restore_layout(const BucketLayout& layout) {
  std::vector<BucketLayout> by_part(parts_.size());
  for (const std::vector<std::size_t>& bucket : layout) {
    if (bucket.empty()) return false;
    const std::size_t part = positions_.at(bucket.front()).part;
    auto& own = by_part[part].emplace_back();
    for (const std::size_t parameter : bucket) {
      if (positions_.at(parameter).part != part) return false;
      own.push_back(positions_[parameter].place);
    }
  }
  bool is_restored = true;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    is_restored = parts_[p].reducer->restore_layout(by_part[p]) && is_restored;
  }
  return is_restored;
}

}  // namespace lockstep::parallel
