// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/core/tensor.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::mpi {

class Gpu;
struct Job;

/// Memory of one bucket, aligned to 64 bytes and filled with zeros. It is freed with the last copy of `owner`.
struct BucketMemory {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};

enum class ReduceOp { sum, average, product, min, max };

/// A started operation. Wait for tickets in the order in which they were returned.
struct Ticket {
  std::uint64_t sequence = 0;
};

/// The elements [begin, begin + count) of one rank.
struct Slice {
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// Divides `count` elements into `parts` slices with borders at multiples of 64 bytes. The sizes differ by at most one
/// such block; the last slice that is not empty contains the remaining elements.
Slice slice_of(std::size_t count, int part, int parts, std::size_t element_bytes);

/// Receives the reduced elements [begin, begin + count) of the array of start_reduce_ranges. `values` are valid during
/// the call only.
using RangeConsumer = std::function<void(std::size_t begin, const std::byte* values, std::size_t count)>;

/// The interface of all tensor communication. Its backends are self (one rank), shm (one host), mpi (any hosts),
/// hierarchical (shared memory inside a host, MPI between hosts) and nccl (GPUs).
///
/// All members are collective unless stated otherwise: all ranks call the same members in the same order with the same
/// counts, types and operations. Values are combined in rank order (((r0 + r1) + r2) + ...) in the element type, then
/// multiplied once by 1/world_size for `average`; a NaN takes precedence over any number. The result is bitwise equal
/// on every rank, with every backend and in every repetition. Not thread-safe. Wrong arguments are errors of the
/// program (std::logic_error), thrown before any communication. Waits end with an error after the timeout of
/// make_collectives.
///
/// Arrays are in host memory or, with nccl, in GPU memory. NCCL chooses the order of a sum (the same on every rank) and
/// the treatment of NaN, can round 16-bit floats at every addition, and does not support lanes. Its operations are
/// asynchronous: they follow the work of the current stream of LibTorch, and "returns when" means that later work of
/// this stream finds the result, while the host continues.
/// @throws CommError  from every member: a peer failed, is late, or calls another operation (then on every rank, with
///                    both calls). Afterwards, every call throws
class Collectives {
 public:
  /// The facts about a rank, constant throughout the life of an object.
  struct RankFacts {
    std::string name;  ///< "self", "shm", "mpi", "hierarchical" or "nccl"
    int rank = 0;
    int world_size = 1;
    /// The rank among the ranks that divide an array in reduce_range: the ranks of one host for shm and hierarchical,
    /// this rank only for self and mpi.
    int local_rank = 0;
    int local_size = 1;  ///< the number of these ranks
  };

  explicit Collectives(RankFacts facts) : facts_(std::move(facts)) {}
  virtual ~Collectives() = default;

  std::string_view name() const noexcept { return facts_.name; }
  int rank() const noexcept { return facts_.rank; }
  int world_size() const noexcept { return facts_.world_size; }
  int local_rank() const noexcept { return facts_.local_rank; }
  int local_size() const noexcept { return facts_.local_size; }

  /// Allocates memory in which all_reduce is fastest.
  /// @param bytes  the same on every rank; can be 0
  virtual BucketMemory allocate_bucket(std::size_t bytes) = 0;

  /// Starts a reduction of the values of this rank and returns at once.
  /// @param values  count elements, reduced in place; do not access them until `wait` has returned. Any memory is
  ///                accepted; memory of a BucketMemory of this object is reduced without a copy
  /// @param dtype   float32, float64, float16 and bfloat16 (combined as float32, rounded once, ties to even); int32,
  ///                int64 and uint8, which wrap around and have no average; boolean: min is "all", max is "any"
  Ticket start_all_reduce(void* values, std::size_t count, DType dtype, ReduceOp op);
  /// Returns when `values` contain the result on this rank and can be overwritten.
  virtual void wait(Ticket ticket) = 0;
  void all_reduce(void* values, std::size_t count, DType dtype, ReduceOp op) {
    wait(start_all_reduce(values, count, dtype, op));
  }

  static constexpr std::size_t kPieceElements = 4096;
  static constexpr std::size_t kMaxRangeTickets = 500;
  /// Like start_all_reduce, but the result is obtained with `reduce_range` instead of `wait`.
  /// @throws std::logic_error  kMaxRangeTickets were started and nothing else since
  Ticket start_reduce_ranges(void* values, std::size_t count, DType dtype, ReduceOp op);
  /// Computes the result for the elements of `range` only, bitwise equal to all_reduce, and passes it to `consume` in
  /// consecutive pieces of kPieceElements while they are in the first-level cache, the last of which can be shorter;
  /// device memory as one piece.
  /// Waits until all ranks have started this ticket and all earlier ones.
  ///
  /// Each rank chooses its ranges; they can overlap those of other ranks. Tickets can be used in any order and any
  /// number of times. A ticket stays open until a later operation that is not read in ranges has been performed. Until
  /// that operation returns, do not change `values`, except elements that were consumed here and that no other rank of
  /// this host requests.
  /// @param range    within the array, with any start and end
  /// @param consume  must not call members of this object; its exceptions are passed to the caller
  /// @throws std::logic_error  the ticket is not a reduction in ranges, or is no longer open
  virtual void reduce_range(Ticket ticket, Slice range, const RangeConsumer& consume) = 0;

  void broadcast(std::span<std::byte> bytes, int root);
  /// @param all  world_size() * mine.size() bytes, in rank order; must not overlap `mine`
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) { wait(start_all_gather(mine, all)); }
  /// Starts an all_gather. Until `wait` has returned, do not change `mine`; the contents of `all` are unspecified.
  Ticket start_all_gather(std::span<const std::byte> mine, std::span<std::byte> all);
  /// The contributions of all ranks, by rank. The sizes can differ and can be 0.
  std::vector<std::vector<std::byte>> all_gather_any(std::span<const std::byte> mine);
  /// Rank r receives slice r of the sum, slice_of(count, r, world_size, size_of(dtype)).
  /// @param values  count elements; their contents are unspecified afterwards
  /// @param slice   slice_of(...).count elements
  void reduce_scatter(void* values, std::size_t count, DType dtype, ReduceOp op, void* slice) {
    wait(start_reduce_scatter(values, count, dtype, op, slice));
  }
  /// Starts a reduce_scatter. Until `wait` has returned, do not access `values`; the contents of `slice` are
  /// unspecified.
  Ticket start_reduce_scatter(void* values, std::size_t count, DType dtype, ReduceOp op, void* slice);
  void barrier();

  /// Reports that this rank has failed: peers on this host throw an error of class `code` that names this rank instead
  /// of waiting for it (Error::is_remote), here or in objects that were split from this one. Ranks of other hosts
  /// detect that this rank has ended. Returns at once. Not collective.
  virtual void give_up(ExitCode code, const std::string& sentence) noexcept = 0;

  /// A new object for the ranks with the same `color`, in the order of their ranks, with the same backend if it
  /// supports them.
  /// @param color  at least 0
  virtual std::unique_ptr<Collectives> split(int color) = 0;

  /// Starts any operation: the functions above and start_lane_reduce of mpi/shared/lane_tree.hpp describe theirs. Used
  /// by the modules of Lockstep.
  virtual Ticket start(const Job& job) = 0;

 private:
  RankFacts facts_;
};

/// The settings of section `comm`, and the GPU.
struct CommSettings {
  std::string backend = "auto";              ///< auto, self, shm, mpi, hierarchical or nccl
  double timeout_s = 300;                    ///< timeout of waits in seconds; then CommError is thrown
  int hosts = 0;                             ///< see Topology::of
  std::shared_ptr<const Gpu> gpu = nullptr;  ///< the GPU of this rank; null = CPU; not a key

  static KeySpecs keys();
  static CommSettings from(const Section& comm);
};

/// Creates the backend for the ranks of `world`. auto selects self for one rank, shm if all ranks share a host, mpi if
/// every rank has its own host, nccl for several ranks with GPUs, and hierarchical otherwise. Collective.
/// @throws ConfigError  on every rank, if the backend does not support these ranks (self for several ranks, shm across
///                      hosts, nccl without GPUs or with ranks that share a GPU, any other backend for several GPUs)
std::unique_ptr<Collectives> make_collectives(const Communicator& world, const CommSettings& options);

}  // namespace lockstep::mpi
