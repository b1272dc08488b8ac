// SPDX-License-Identifier: BSD-3-Clause
#include "engine/saving/memory_copies.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <span>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/store/memory_slot.hpp"
#include "checkpoints/store/store.hpp"
#include "core/system/process.hpp"
#include "engine/settings/agreed.hpp"
#include "mpi/process/topology.hpp"

namespace lockstep::engine {

namespace {

namespace fs = std::filesystem;

constexpr const char* kNote = "COPIES";

/// Whether a folder exists that only this user can write to.
bool is_own_folder(const std::string& folder) {
  struct stat status {};
  return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::string folder_of_host(const std::string& folder) { return folder + "/" + host_name(); }

/// The slots on this host. A copy that is being written when a process dies is lost: the other one is there, too.
std::array<std::string, 2> slots_of(const std::string& folder) {
  const std::string own = folder_of_host(folder);
  return {own + "/copy-0", own + "/copy-1"};
}

/// The slot that has the copy of a step; "" = none.
std::string slot_with(const std::string& folder, std::int64_t step) {
  for (const std::string& slot : slots_of(folder)) {
    if (checkpoints::step_in_slot(slot) == step) return slot;
  }
  return "";
}

/// Gives the copy of `step` to the hosts that do not have it.
/// @param firsts  the first ranks of the hosts
/// @param owner   one of them that has the copy
void share_copy(const mpi::Communicator& firsts, int owner, const std::string& folder, std::int64_t step) {
  const bool is_owner = firsts.rank() == owner;
  const bool is_missing = !is_owner && slot_with(folder, step).empty();
  if (firsts.agree(!is_missing)) return;
  std::vector<std::byte> bytes;
  std::array<std::uint64_t, 1> size{};
  firsts.all_or_throw([&] {
    if (is_owner) bytes = copy_of(folder, step);
    size[0] = bytes.size();
  });
  firsts.broadcast(std::span<std::uint64_t>(size), owner);
  firsts.all_or_throw([&] { bytes.resize(size[0]); });
  firsts.broadcast(std::span(bytes), owner);
  firsts.all_or_throw([&] {
    if (is_missing) put_copy(folder, step, bytes);
  });
}

/// Writes the copy of a step as a checkpoint, which ranks read like any other, unless it is there.
std::string checkpoint_of_copy(const std::string& folder, std::int64_t step) {
  const std::string there = checkpoints::checkpoint_of(folder, step);
  if (checkpoints::exists(there)) return there;
  const checkpoints::Archive archive = checkpoints::read_slot(slot_with(folder, step));
  const std::string staged = checkpoints::stage(folder, step);
  checkpoints::write_part(staged, step, archive, {}, checkpoints::io_threads());
  return checkpoints::commit(folder, staged, step, {.is_single_file = true});
}

}  // namespace

std::string memory_folder(const std::string& run_id) { return "/dev/shm/copies-lockstep-" + run_id; }

void make_memory_folder(const std::string& folder) {
  for (const std::string& each : {folder, folder_of_host(folder)}) {
    if (::mkdir(each.c_str(), S_IRWXU) != 0 && errno != EEXIST) checkpoints::throw_errno(each, "mkdir");
    if (!is_own_folder(each)) throw CheckpointError(each, "it exists and belongs to another user");
  }
}

void note_memory_folder(const std::string& directory, const std::string& folder) {
  checkpoints::replace_file(directory, kNote, folder + "\n");
}

std::string noted_memory_folder(const std::string& directory) {
  std::ifstream note(directory + "/" + kNote);
  std::string folder;
  std::getline(note, folder);
  return folder.starts_with(memory_folder("")) && folder.find("..") == std::string::npos ? folder : "";
}

void remove_memory_copies(const std::string& directory, const std::string& folder) noexcept {
  std::error_code ignored;
  if (is_own_folder(folder)) fs::remove_all(folder, ignored);
  fs::remove(directory + "/" + kNote, ignored);
}

void remove_memory_checkpoints(const std::string& folder) noexcept {
  std::error_code ignored;
  if (!is_own_folder(folder)) return;
  for (const std::int64_t step : checkpoints::list(folder)) {
    fs::remove(checkpoints::checkpoint_of(folder, step), ignored);
  }
}

std::vector<std::int64_t> memory_steps(const std::string& folder) {
  std::vector<std::int64_t> steps;
  if (!is_own_folder(folder)) return steps;
  for (const std::string& slot : slots_of(folder)) {
    if (const auto step = checkpoints::step_in_slot(slot)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

void forget_later_copies(const std::string& folder, std::int64_t step) {
  if (!is_own_folder(folder)) return;
  for (const std::string& slot : slots_of(folder)) {
    if (checkpoints::step_in_slot(slot).value_or(-1) > step) checkpoints::empty_slot(slot);
  }
}

std::string slot_for(const std::string& folder, std::int64_t step) {
  const std::array<std::string, 2> slots = slots_of(folder);
  std::array<std::int64_t, 2> steps{};
  for (std::size_t i = 0; i < slots.size(); ++i) {
    steps[i] = checkpoints::step_in_slot(slots[i]).value_or(-1);
    if (steps[i] < step) continue;
    checkpoints::empty_slot(slots[i]);
    steps[i] = -1;
  }
  return steps[0] > steps[1] ? slots[1] : slots[0];
}

std::vector<std::byte> copy_of(const std::string& folder, std::int64_t step) {
  return checkpoints::slot_bytes(slot_with(folder, step));
}

void put_copy(const std::string& folder, std::int64_t step, std::span<const std::byte> bytes) {
  make_memory_folder(folder);
  checkpoints::put_slot_bytes(slot_for(folder, step), bytes);
}

std::optional<std::string> memory_candidate(const mpi::Communicator& world, const std::string& directory) {
  const std::string folder = text_of_root(world, [&] { return noted_memory_folder(directory); });
  if (folder.empty()) return std::nullopt;
  const mpi::Topology topology = mpi::Topology::of(world);
  const bool is_first = topology.local_rank == 0;
  std::vector<std::int64_t> newest(static_cast<std::size_t>(world.size()), -1);
  const std::vector<std::int64_t> mine = is_first ? memory_steps(folder) : std::vector<std::int64_t>();
  const std::array<std::int64_t, 1> last{mine.empty() ? -1 : mine.back()};
  world.all_gather(std::span<const std::int64_t>(last), std::span(newest));
  const auto owner = std::ranges::max_element(newest);
  if (*owner < 0) return std::nullopt;
  const auto rank = static_cast<std::size_t>(owner - newest.begin());
  if (topology.host_count > 1) {
    const mpi::Communicator firsts = world.split(is_first ? 0 : 1, topology.host_index);
    world.all_or_throw([&] {
      if (is_first) share_copy(firsts, topology.host_of_rank[rank], folder, *owner);
    });
  }
  std::string path;
  world.all_or_throw([&] {
    if (is_first) path = checkpoint_of_copy(folder, *owner);
  });
  return world.broadcast(path);
}

}  // namespace lockstep::engine
