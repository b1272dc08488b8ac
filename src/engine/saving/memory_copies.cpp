// SPDX-License-Identifier: BSD-3-Clause
#include "engine/saving/memory_copies.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <span>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/store/store.hpp"
#include "core/text/text.hpp"
#include "engine/settings/agreed.hpp"
#include "mpi/process/topology.hpp"

namespace lockstep::engine {

namespace {

namespace fs = std::filesystem;

constexpr const char* kNote = "COPIES";
constexpr std::size_t kPiece = std::size_t{8} << 20;

/// Whether a folder exists that only this user can write to.
bool is_own_folder(const std::string& folder) {
  struct stat status {};
  return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::vector<std::int64_t> copies_in(const std::string& folder) {
  return is_own_folder(folder) ? checkpoints::list(folder) : std::vector<std::int64_t>();
}

/// Gives the copy of `step` to the hosts that do not have it.
/// @param firsts  the first ranks of the hosts
/// @param owner   one of them that has the copy
void share_copy(const mpi::Communicator& firsts, int owner, const std::string& folder, std::int64_t step) {
  const std::string name = checkpoints::folder_name(step) + ".h5";
  const bool is_owner = firsts.rank() == owner;
  const bool is_missing = !is_owner && !checkpoints::exists(folder + "/" + name);
  if (firsts.agree(!is_missing)) return;
  std::optional<checkpoints::ExistingFile> source;
  std::optional<checkpoints::NewFile> target;
  const std::string staged = folder + "/" + checkpoints::temporary_name(name);
  std::array<std::uint64_t, 1> size{};
  firsts.all_or_throw([&] {
    if (is_owner) size[0] = source.emplace(folder + "/" + name).size();
    if (!is_missing) return;
    make_memory_folder(folder);
    target.emplace(staged);
  });
  firsts.broadcast(std::span<std::uint64_t>(size), owner);
  std::vector<std::byte> bytes(std::min<std::uint64_t>(size[0], kPiece));
  for (std::uint64_t position = 0; position < size[0]; position += bytes.size()) {
    const std::span<std::byte> piece(bytes.data(), std::min<std::uint64_t>(bytes.size(), size[0] - position));
    firsts.all_or_throw([&] {
      if (is_owner) source->read(position, piece);
    });
    firsts.broadcast(piece, owner);
    firsts.all_or_throw([&] {
      if (target) target->write(position, piece);
    });
  }
  firsts.all_or_throw([&] {
    if (!target) return;
    target->close();
    checkpoints::move(staged, folder + "/" + name);
  });
}

}  // namespace

std::string memory_folder(const std::string& run_id) { return "/dev/shm/copies-lockstep-" + run_id; }

void make_memory_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) checkpoints::throw_errno(folder, "mkdir");
  if (!is_own_folder(folder)) throw CheckpointError(folder, "it exists and belongs to another user");
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

std::vector<std::string> memory_candidates(const mpi::Communicator& world, const std::string& directory) {
  const std::string folder = text_of_root(world, [&] { return noted_memory_folder(directory); });
  if (folder.empty()) return {};
  const mpi::Topology topology = mpi::Topology::of(world);
  const bool is_first = topology.local_rank == 0;
  std::vector<std::int64_t> steps;
  world.all_or_throw([&] {
    if (is_first) steps = copies_in(folder);
  });
  std::string mine;
  for (const std::int64_t step : steps) mine += std::to_string(step) + "\n";
  const std::vector<std::string> of_ranks = world.all_gather(mine);
  std::vector<std::int64_t> all;
  std::int64_t newest = -1;
  int owner = 0;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    for (const std::string& line : lines_in(of_ranks[rank])) {
      all.push_back(std::stoll(line));
      if (all.back() <= newest) continue;
      newest = all.back();
      owner = topology.host_of_rank[rank];
    }
  }
  if (newest < 0) return {};
  if (topology.host_count > 1) {
    const mpi::Communicator firsts = world.split(is_first ? 0 : 1, topology.host_index);
    world.all_or_throw([&] {
      if (is_first) share_copy(firsts, owner, folder, newest);
    });
    all = {newest};
  }
  std::ranges::sort(all, std::greater());
  std::vector<std::string> paths;
  for (const std::int64_t step : all) paths.push_back(checkpoints::checkpoint_of(folder, step));
  return paths;
}

}  // namespace lockstep::engine
