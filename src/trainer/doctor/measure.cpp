// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/doctor/measure.hpp"

#include <lockstep/core/error.hpp>

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <map>
#include <span>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <vector>

#include "checkpoints/disk/disk.hpp"
#include "core/text/duration.hpp"
#include "core/text/text.hpp"
#include "trainer/doctor/quota.hpp"

namespace lockstep::trainer {

namespace {

namespace fs = std::filesystem;

constexpr double kSpan = 0.1;  // seconds per measurement

/// How often `work` runs in a second.
template <class Work>
double rate_of(const Work& work) {
  work();
  const SteadyClock::time_point start = SteadyClock::now();
  double runs = 0;
  do {
    work();
    ++runs;
  } while (seconds_since(start) < kSpan);
  return runs / seconds_since(start);
}

void exchange(const mpi::Communicator& world, int peer, bool is_first, std::vector<std::byte>& bytes) {
  const int count = static_cast<int>(bytes.size());
  for (const bool sends : {is_first, !is_first}) {
    if (sends) {
      mpi::check(MPI_Send(bytes.data(), count, MPI_BYTE, peer, 0, world.handle()), "MPI_Send");
    } else {
      mpi::check(MPI_Recv(bytes.data(), count, MPI_BYTE, peer, 0, world.handle(), MPI_STATUS_IGNORE), "MPI_Recv");
    }
  }
}

/// Seconds of a message there and back.
double round_trip(const mpi::Communicator& world, int peer, std::size_t bytes, int times) {
  std::vector<std::byte> message(bytes);
  exchange(world, peer, world.is_root(), message);
  const SteadyClock::time_point start = SteadyClock::now();
  for (int i = 0; i < times; ++i) exchange(world, peer, world.is_root(), message);
  return seconds_since(start) / times;
}

/// The ranks exchange messages with rank 0, one after the other.
void measure_messages(const mpi::Communicator& world, DoctorFacts& facts) {
  constexpr std::size_t kLarge = 4'000'000;
  for (int peer = 1; peer < world.size(); ++peer) {
    if (!world.is_root() && world.rank() != peer) continue;
    const int other = world.is_root() ? peer : 0;
    const double small = round_trip(world, other, 8, 200);
    const double large = round_trip(world, other, kLarge, 5);
    if (world.is_root()) continue;
    facts.latency_us = small / 2 * 1e6;
    facts.message_gbs = 2 * static_cast<double>(kLarge) / large / 1e9;
  }
}

/// Bus bandwidth of all_reduce over n ranks, in GB/s: bytes / time * 2 (n - 1) / n. It does not depend on n where links
/// are the limit. Source: doc/PERFORMANCE.md of nccl-tests.
double bus_bandwidth(const mpi::Communicator& ranks) {
  constexpr int kTimes = 3;
  if (ranks.size() == 1) return 0;
  std::vector<float> values(1'000'000);
  const std::span<float> all(values);
  ranks.all_reduce(all);
  ranks.barrier();
  const SteadyClock::time_point start = SteadyClock::now();
  for (int i = 0; i < kTimes; ++i) ranks.all_reduce(all);
  const double seconds = seconds_since(start) / kTimes;
  const double n = ranks.size();
  return static_cast<double>(all.size_bytes()) / seconds * 2 * (n - 1) / n / 1e9;
}

std::string type_of_file_system(const std::string& folder) {
  static const std::map<long, std::string> names = {
      {0x6969, "nfs"},         {0x0BD00BD0, "lustre"}, {0x47504653, "gpfs"}, {0x01021994, "tmpfs"},
      {0x794c7630, "overlay"}, {0xef53, "ext4"},       {0x58465342, "xfs"},  {0x19830326, "beegfs"}};
  struct statfs status {};
  if (statfs(folder.c_str(), &status) != 0) return "";
  const auto found = names.find(static_cast<long>(status.f_type));
  return found == names.end() ? "" : found->second;
}

std::string file_of(const std::string& folder, int rank) { return folder + "/.doctor-" + std::to_string(rank); }

}  // namespace

void measure_speed(const mpi::Communicator& world, int threads, DoctorFacts& facts) {
  const int before = at::get_num_threads();
  at::set_num_threads(threads);
  world.barrier();
  const at::Tensor from = at::ones({16'000'000});
  at::Tensor target = at::empty_like(from);
  facts.memory_gbs = rate_of([&] { target.copy_(from); }) * 2 * static_cast<double>(from.nbytes()) / 1e9;
  constexpr std::int64_t kSize = 512;
  const at::Tensor matrix = at::ones({kSize, kSize});
  at::Tensor product = at::empty_like(matrix);
  world.barrier();
  facts.products_gfs = rate_of([&] { at::mm_out(product, matrix, matrix); }) * 2 * kSize * kSize * kSize / 1e9;
  at::set_num_threads(before);
  world.barrier();
  measure_messages(world, facts);
  world.barrier();
}

void measure_all_reduce(const mpi::Communicator& world, const mpi::Topology& topology, DoctorFacts& facts) {
  const bool is_first = topology.local_rank == 0;
  facts.inside_gbs = bus_bandwidth(topology.split_by_host(world));
  const mpi::Communicator firsts = world.split(is_first ? 0 : 1);
  if (is_first) facts.between_gbs = bus_bandwidth(firsts);
  world.barrier();
}

void try_files(const mpi::Communicator& world, const std::string& folder, FileFacts& facts) {
  std::error_code ignored;
  const bool is_new = world.is_root() && !fs::exists(folder, ignored);
  const std::string mine = file_of(folder, world.rank());
  const auto attempt = [&](const auto& work) {
    try {
      if (facts.fault.empty()) work();
    } catch (const std::exception& failure) {
      facts.fault = message_of(failure);
    }
  };
  attempt([&] {
    if (world.is_root()) checkpoints::make_folders(folder);
  });
  world.barrier();
  attempt([&] {
    const std::string bytes(1'000'000, 'x');
    fs::remove(mine, ignored);
    const SteadyClock::time_point start = SteadyClock::now();
    checkpoints::write_file(mine, bytes);
    facts.sync_ms = seconds_since(start) * 1e3;
    struct stat status {};
    if (stat(mine.c_str(), &status) == 0) {
      const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
      facts.clock_ahead_s =
          static_cast<double>(status.st_mtim.tv_sec) + 1e-9 * static_cast<double>(status.st_mtim.tv_nsec) - now;
    }
    checkpoints::move(mine, mine + "-moved");
    checkpoints::move(mine + "-moved", mine);
    struct statvfs space {};
    if (statvfs(folder.c_str(), &space) == 0) {
      facts.free_gb = static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize) / 1e9;
    }
    if (const auto left = quota_left(folder)) facts.quota_gb = static_cast<double>(*left) / 1e9;
    facts.type = type_of_file_system(folder);
  });
  world.barrier();
  facts.sees_first_rank = fs::exists(file_of(folder, 0), ignored);
  world.barrier();
  fs::remove(mine, ignored);
  world.barrier();
  if (is_new) fs::remove(folder, ignored);
}

}  // namespace lockstep::trainer
