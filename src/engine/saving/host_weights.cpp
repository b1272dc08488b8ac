// SPDX-License-Identifier: BSD-3-Clause
#include "engine/saving/host_weights.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstdint>

#include "checkpoints/store/checkpoint_index.hpp"
#include "engine/saving/read_agreed.hpp"
#include "engine/state/paths.hpp"

namespace lockstep::engine {

namespace {

constexpr std::uint64_t kAlignment = 64;

template <std::size_t Count>
bool is_below_any(const std::string& path, const std::array<std::string, Count>& groups) {
  return std::any_of(groups.begin(), groups.end(), [&](const std::string& group) { return path.starts_with(group); });
}

/// Whether it is an array of the model or of its average. Second names have no bytes of their own.
bool is_weight(const checkpoints::ArrayInfo& array) {
  return array.first_path.empty() && is_below_any(array.path, std::array{kModel + "/", kAverage + "/"});
}

bool is_left_out(const std::string& path) {
  return is_below_any(path, std::array{kOptimizers + "/", kHooks + "/", kCommHook + "/", kBuckets + "/"});
}

std::uint64_t end_of(std::uint64_t offset, std::uint64_t bytes) {
  return (offset + bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

HostWeights::HostWeights(const mpi::Communicator& world, const mpi::Communicator& host,
                         const std::vector<std::string>& paths) {
  std::vector<std::vector<checkpoints::ArrayInfo>> indexes;
  std::uint64_t bytes = 0;
  world.all_or_throw([&] {
    for (const std::string& path : paths) {
      indexes.push_back(checkpoints::read_checkpoint_index(path).arrays);
      for (const checkpoints::ArrayInfo& array : indexes.back()) {
        if (is_weight(array)) bytes = end_of(bytes, array.nbytes);
      }
    }
  });
  const std::string size = std::to_string(bytes);
  const std::string size_of_first = host.broadcast(size);
  world.all_or_throw([&] {
    if (size != size_of_first) throw CheckpointError(paths.front(), "it was changed while it was read; start again");
  });
  world.all_or_throw([&] { memory_ = mpi::SharedRegion(host, bytes); });
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    checkpoints::RestoreTargets& targets = targets_[paths[i]];
    for (const checkpoints::ArrayInfo& array : indexes[i]) {
      if (is_left_out(array.path)) targets[array.path] = {.is_left_out = true};
      if (!is_weight(array)) continue;
      targets[array.path] = {.memory = memory_.bytes().subspan(offset, array.nbytes)};
      offset = end_of(offset, array.nbytes);
    }
    divide_reading(targets, host);
  }
}

checkpoints::Archive HostWeights::read(const std::string& path) const {
  return checkpoints::read(path, targets_.at(path));
}

}  // namespace lockstep::engine
