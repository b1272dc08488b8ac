// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/block_memory.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include "core/system/resources.hpp"

namespace lockstep {

namespace {

constexpr double kBytesOfMb = 1 << 20;
constexpr double kLeastMb = 1;  // smaller blocks are not worth a mention

std::atomic<bool> has_measured{false};
thread_local bool is_measuring = false;
thread_local double last_mb = 0;  // resident memory at the last call of count_growth

std::mutex blocks_mutex;

std::map<std::string, BlockMemory>& blocks() {
  static std::map<std::string, BlockMemory> all;
  return all;
}

BlockMemory& block_named(const std::string& path) {
  const std::string name = path.empty() ? "model" : path;
  return blocks().try_emplace(name, BlockMemory{.block = name}).first->second;
}

double all_mb(const BlockMemory& memory) { return memory.parameters_mb + memory.forward_mb; }

std::string rounded_mb(double mb) { return std::to_string(static_cast<std::int64_t>(mb + 0.5)) + " MiB"; }

}  // namespace

void note_parameters(const std::string& block, std::int64_t bytes) {
  const std::lock_guard hold(blocks_mutex);
  block_named(block).parameters_mb += static_cast<double>(bytes) / kBytesOfMb;
}

GrowthMeasurement::GrowthMeasurement(bool is_wanted) noexcept : is_first_(is_wanted && !has_measured.exchange(true)) {
  if (!is_first_) return;
  last_mb = resident_memory_mb();
  is_measuring = true;
}

GrowthMeasurement::~GrowthMeasurement() {
  if (is_first_) is_measuring = false;
}

void count_growth(const char* block) noexcept {
  if (!is_measuring) return;
  try {
    const double before_mb = std::exchange(last_mb, resident_memory_mb());
    if (block == nullptr || last_mb <= before_mb) return;
    const std::lock_guard hold(blocks_mutex);
    block_named(block).forward_mb += last_mb - before_mb;
  } catch (const std::exception&) {
    is_measuring = false;  // there is no memory for the note
  }
}

std::vector<BlockMemory> largest_blocks(std::size_t count) {
  std::vector<BlockMemory> largest;
  {
    const std::lock_guard hold(blocks_mutex);
    for (const auto& [name, memory] : blocks()) {
      if (all_mb(memory) >= kLeastMb) largest.push_back(memory);
    }
  }
  std::ranges::stable_sort(largest, std::ranges::greater(), all_mb);
  largest.resize(std::min(count, largest.size()));
  return largest;
}

std::string text_of(const BlockMemory& memory) {
  const std::string forward = memory.forward_mb >= 0.5 ? ", first forward pass " + rounded_mb(memory.forward_mb) : "";
  return memory.block + " (parameters " + rounded_mb(memory.parameters_mb) + forward + ")";
}

}  // namespace lockstep
