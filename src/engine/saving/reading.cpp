// SPDX-License-Identifier: BSD-3-Clause
#include "engine/saving/reading.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <algorithm>
#include <array>
#include <cstdint>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/store/checkpoint_index.hpp"
#include "engine/saving/progress_lines.hpp"
#include "engine/state/paths.hpp"

namespace lockstep::engine {

namespace {

/// Why a rank cannot read a checkpoint.
struct Refusal {
  /// The checkpoint is damaged: it is renamed, and an older one can replace it. Otherwise, it is no fault of the
  /// checkpoint: a disk that cannot be read, another version of the program.
  bool is_damage = false;
  std::string reason;
};

bool is_damage(const CheckpointError& error) {
  return error.fault() == CheckpointFault::damaged || error.fault() == CheckpointFault::missing ||
         error.fault() == CheckpointFault::other_kind;
}

// Answers as texts, for all_gather: empty, or whether it is damage as a digit and the reason.

std::string encode(const std::optional<Refusal>& refusal) {
  return refusal ? (refusal->is_damage ? "1" : "0") + refusal->reason : "";
}

std::optional<Refusal> decode(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return Refusal{text.front() == '1', text.substr(1)};
}

/// Collective.
/// @return  why the lowest rank that could not read it could not; nullopt = every rank has it in `archive`
std::optional<Refusal> try_read(const AgreedReading& reading, const std::string& path, checkpoints::Archive& archive) {
  std::optional<Refusal> refusal;
  reading.store.write([&] {
    try {
      const TransferLines progress("reading " + path, bytes_in(path), checkpoints::bytes_read);
      archive = checkpoints::read(path, reading.targets);
    } catch (const CheckpointError& error) {
      refusal = Refusal{is_damage(error), error.what()};
    } catch (const std::exception& error) {
      refusal = Refusal{false, path + ": " + error.what()};
    }
  });
  for (const std::string& text : reading.world.all_gather(encode(refusal))) {
    if (const auto first = decode(text)) return first;
  }
  return std::nullopt;
}

[[noreturn]] void refuse_all(bool are_more_left, std::size_t tries, const std::string& reasons) {
  throw_agreed(ExitCode::checkpoint,
               (are_more_left ? "none of the " + std::to_string(tries) + " latest checkpoints can be read"
                              : "no checkpoint can be read") +
                   std::string(", and a new run is not started automatically: ") + reasons +
                   "; restore a copy, or set resume.allow_fresh=true");
}

constexpr std::uint64_t kAlignment = 64;

template <std::size_t Count>
bool is_below_any(const std::string& path, const std::array<std::string, Count>& groups) {
  return std::any_of(groups.begin(), groups.end(), [&](const std::string& group) { return path.starts_with(group); });
}

/// Whether it is an array of the model or of its average. Second names have no bytes of their own.
bool is_weight(const checkpoints::IndexedArray& array) {
  return array.first_path.empty() && is_below_any(array.path, std::array{kModel + "/", kAverage + "/"});
}

bool is_left_out(const std::string& path) {
  return is_below_any(path, std::array{kOptimizers + "/", kHooks + "/", kCommHook + "/", kBuckets + "/"});
}

std::uint64_t end_of(std::uint64_t offset, std::uint64_t bytes) {
  return (offset + bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

void divide_reading(checkpoints::RestoreTargets& shared, const mpi::Communicator& host) {
  std::size_t total = 0;
  for (const auto& [path, target] : shared) total += target.memory.size();
  const std::size_t part = total / static_cast<std::size_t>(host.size()) + 1;
  std::size_t before = 0;
  for (auto& [path, target] : shared) {
    target.is_read_here = before / part == static_cast<std::size_t>(host.rank());
    before += target.memory.size();
  }
}

std::optional<ReadCheckpoint> read_agreed(const AgreedReading& reading, const std::vector<std::string>& paths,
                                          const ResumeSettings& settings) {
  const bool may_fall_back = settings.source == "auto" || settings.source == "must";
  const auto tries = static_cast<std::size_t>(1 + settings.max_fallback);
  std::string reasons;
  for (std::size_t i = 0; i < std::min(paths.size(), tries); ++i) {
    ReadCheckpoint result{.path = paths[i]};
    const auto refusal = try_read(reading, paths[i], result.archive);
    if (!refusal) return result;
    if (!may_fall_back || !refusal->is_damage) throw_agreed(ExitCode::checkpoint, refusal->reason);
    reasons += (reasons.empty() ? "" : "; ") + refusal->reason;
    reading.world.all_or_throw([&] {
      if (!reading.world.is_root()) return;
      log::warning("skipping a checkpoint, which is renamed to " + checkpoints::quarantine(paths[i]) + ": " +
                   refusal->reason);
    });
  }
  if (!settings.allow_fresh) refuse_all(paths.size() > tries, tries, reasons);
  log::warning("no checkpoint can be read; starting a new run (resume.allow_fresh)");
  return std::nullopt;
}

HostWeights::HostWeights(const mpi::Communicator& world, const mpi::Communicator& host,
                         const std::vector<std::string>& paths) {
  std::vector<std::vector<checkpoints::IndexedArray>> indexes;
  std::uint64_t bytes = 0;
  world.all_or_throw([&] {
    for (const std::string& path : paths) {
      indexes.push_back(checkpoints::read_checkpoint_index(path).arrays);
      for (const checkpoints::IndexedArray& array : indexes.back()) {
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
    for (const checkpoints::IndexedArray& array : indexes[i]) {
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
