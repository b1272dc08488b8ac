// SPDX-License-Identifier: BSD-3-Clause
#include "engine/saving/read_agreed.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "checkpoints/disk/disk.hpp"
#include "engine/saving/progress_lines.hpp"

namespace lockstep::engine {

namespace {

/// Why a rank cannot read a checkpoint.
struct Refusal {
  enum class Cause {
    damage,  ///< the checkpoint is damaged: it is renamed, and an older one can replace it
    other,   ///< no fault of the checkpoint: a disk that cannot be read, another version of the program
  };
  Cause cause = Cause::other;
  std::string reason;
};

Refusal::Cause cause_of(const CheckpointError& error) {
  const bool is_damage = error.fault() == CheckpointFault::damaged || error.fault() == CheckpointFault::missing ||
                         error.fault() == CheckpointFault::other_kind;
  return is_damage ? Refusal::Cause::damage : Refusal::Cause::other;
}

// Answers as texts, for all_gather: empty, or the cause as a digit and the reason.

std::string encode(const std::optional<Refusal>& refusal) {
  return refusal ? std::to_string(static_cast<int>(refusal->cause)) + refusal->reason : "";
}

std::optional<Refusal> decode(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return Refusal{static_cast<Refusal::Cause>(text.front() - '0'), text.substr(1)};
}

/// That of the lowest rank which has one. Collective.
std::optional<Refusal> agreed(const std::optional<Refusal>& mine, const mpi::Communicator& world) {
  for (const std::string& text : world.all_gather(encode(mine))) {
    if (const auto refusal = decode(text)) return refusal;
  }
  return std::nullopt;
}

/// Collective.
/// @return  why some rank could not read it; nullopt = every rank has it in `archive`
std::optional<Refusal> try_read(const AgreedReading& reading, const std::string& path, checkpoints::Archive& archive) {
  std::optional<Refusal> refusal;
  reading.store.write([&] {
    try {
      const TransferLines progress("reading " + path, bytes_in(path), checkpoints::bytes_read);
      archive = checkpoints::read(path, reading.targets);
    } catch (const CheckpointError& error) {
      refusal = Refusal{cause_of(error), error.what()};
    } catch (const std::exception& error) {
      refusal = Refusal{Refusal::Cause::other, path + ": " + error.what()};
    }
  });
  return agreed(refusal, reading.world);
}

[[noreturn]] void refuse_all(bool are_more_left, std::size_t tries, const std::string& reasons) {
  throw_agreed(ExitCode::checkpoint,
               (are_more_left ? "none of the " + std::to_string(tries) + " latest checkpoints can be read"
                              : "no checkpoint can be read") +
                   std::string(", and a new run is not started automatically: ") + reasons +
                   "; restore a copy, or set resume.allow_fresh=true");
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

ReadCheckpoint read_agreed(const AgreedReading& reading, const std::string& path) {
  ReadCheckpoint result{.path = path};
  if (const auto refusal = try_read(reading, path, result.archive)) {
    throw_agreed(ExitCode::checkpoint, refusal->reason);
  }
  return result;
}

std::optional<ReadCheckpoint> read_first_agreed(const AgreedReading& reading, const std::vector<std::string>& paths,
                                                const ResumeSettings& settings) {
  const auto tries = static_cast<std::size_t>(1 + settings.max_fallback);
  std::string reasons;
  for (std::size_t i = 0; i < std::min(paths.size(), tries); ++i) {
    ReadCheckpoint result{.path = paths[i]};
    const auto refusal = try_read(reading, paths[i], result.archive);
    if (!refusal) return result;
    if (refusal->cause != Refusal::Cause::damage) throw_agreed(ExitCode::checkpoint, refusal->reason);
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

}  // namespace lockstep::engine
