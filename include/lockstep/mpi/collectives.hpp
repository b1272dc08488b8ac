// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/dtype.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/core/section.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::mpi {

class Gpu;
class LaneTree;

/// Memory of one bucket, aligned to 64 bytes and zeroed. Freed with the last copy; `owner` keeps the mapping alive.
struct BucketMemory {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};

enum class ReduceOp { sum, average, product, min, max };

/// A started operation; wait for tickets in the order in which they were given.
struct Ticket {
  std::uint64_t sequence = 0;
};

/// The elements [begin, begin + count) that one rank works on.
struct Slice {
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// Cuts `count` elements into `parts` slices whose borders lie on multiples of 64 bytes; sizes differ by at most one
/// such block, and the last elements belong to the last slice that is not empty.
Slice slice_of(std::size_t count, int part, int parts, std::size_t element_bytes);

/// Receives the reduced elements [begin, begin + count) of the array that was given to start_reduce_ranges. `values`
/// are valid during the call only.
using RangeConsumer = std::function<void(std::size_t begin, const std::byte* values, std::size_t count)>;

/// The seam of all tensor communication. A backend is one file: self (one rank), shm (one host), mpi (any hosts),
/// hierarchical (shared memory inside a host, MPI between hosts), nccl (GPUs).
///
/// Everything is collective: all ranks call the same members in the same order with the same counts, types and
/// operations. Values are combined in rank order (((r0 + r1) + r2) + ...) in the element type, then multiplied once by
/// 1/world_size for `average`; a NaN goes before any number. Every rank gets the same bits, on every backend and in
/// every repetition. Used by one thread at a time. Wrong arguments are mistakes in the program: std::logic_error,
/// before any peer knows. Waits give up after the time-out that make_collectives was given.
///
/// Memory is host memory, but with nccl it may be a GPU's, too. Then NCCL chooses the order of the sum (the same on
/// every rank) and what becomes of a NaN, 16-bit floats may be rounded at every addition, nothing can be summed by
/// lanes, and operations are asynchronous: they follow what the current stream of LibTorch has so far, and "returns
/// when" means that later work of that stream finds the result, while the host continues.
/// @throws CommError  from every member: a peer failed, is late, or asks for something else (then on every rank, naming
///                    both sides). The object is of no use afterwards: every later call throws, too
class Collectives {
 public:
  virtual ~Collectives() = default;

  virtual std::string_view name() const noexcept = 0;  ///< "self", "shm", "mpi", "hierarchical" or "nccl"
  virtual int rank() const noexcept = 0;
  virtual int world_size() const noexcept = 0;
  /// Place among the ranks that divide an array among themselves in reduce_range: those of one host for shm and
  /// hierarchical, this rank alone for self and mpi.
  virtual int local_rank() const noexcept { return 0; }
  virtual int local_size() const noexcept { return 1; }  ///< how many they are

  /// Whether buckets are memory of a GPU.
  virtual bool has_device_buckets() const noexcept { return false; }
  /// Memory in which all_reduce is fastest. May be asked for at any time.
  /// @param bytes  the same on every rank; may be 0
  virtual BucketMemory allocate_bucket(std::size_t bytes) = 0;

  /// Says that this rank's values are final and returns at once; nobody waits here.
  /// @param values  count elements, in place; stays untouched until `wait` returned. Any memory is accepted; memory
  ///                within a BucketMemory of this object is reduced where it lies
  /// @param dtype   float32, float64, float16 and bfloat16 (combined as float32, rounded once, ties to even); int32,
  ///                int64 and uint8, which wrap around and have no average; boolean: min is "all", max is "any"
  virtual Ticket start_all_reduce(void* values, std::size_t count, DType dtype, ReduceOp op) = 0;
  /// Returns when `values` hold the result on this rank and may be overwritten.
  virtual void wait(Ticket ticket) = 0;
  void all_reduce(void* values, std::size_t count, DType dtype, ReduceOp op) {
    wait(start_all_reduce(values, count, dtype, op));
  }

  static constexpr std::size_t kPieceElements = 4096;
  static constexpr std::size_t kMaxRangeTickets = 500;
  /// Like start_all_reduce, but the result is taken by `reduce_range` instead of `wait`.
  /// @throws std::logic_error  kMaxRangeTickets were started and nothing else since
  virtual Ticket start_reduce_ranges(void* values, std::size_t count, DType dtype, ReduceOp op) = 0;
  /// Forms the result, with the bits of an all_reduce, for the elements of `range` only, and hands it to `consume` in
  /// consecutive pieces of at most kPieceElements while they are in the first-level cache; device memory as one piece.
  /// Waits until all ranks have come to this ticket and those before.
  ///
  /// Each rank asks for ranges of its own, which may overlap those of others, or for none; of tickets in any order and
  /// any number of times. A ticket stays open until an operation that was started after it, by anything else than
  /// start_reduce_ranges or start_lane_ranges, is performed. Once that has returned, `values` may be overwritten; until
  /// then they must stay as they are, but for elements that were consumed here and for which no other rank of this host
  /// asks.
  /// @param range    within the array; may begin and end anywhere
  /// @param consume  calls no member of this object; what it throws reaches the caller
  /// @throws std::logic_error  the ticket is not to be taken by ranges, or not open any more
  virtual void reduce_range(Ticket ticket, Slice range, const RangeConsumer& consume) = 0;

  /// Sums by lanes, so that the result does not depend on the number of ranks: like start_all_reduce, with this rank's
  /// tree.nodes_of(rank()) instead of one array. All ranks' nodes are added in the order of the tree, and `average`
  /// multiplies the sum once by 1/tree.lanes(). The result comes to the place of the first node; the others' contents
  /// are unspecified then.
  /// @param nodes   the first node of `count` elements
  /// @param stride  elements from one node to the next, at least `count`, the same on every rank
  /// @param dtype   float32, float64, int32, int64 or uint8: sums in 16 bits would depend on where they are rounded
  /// @param op      sum or average
  /// @param tree    for world_size() ranks, equal on all of them; must outlive the ticket
  virtual Ticket start_lane_reduce(void* nodes, std::size_t count, std::size_t stride, DType dtype, ReduceOp op,
                                   const LaneTree& tree) = 0;
  /// The same, to be taken by reduce_range.
  virtual Ticket start_lane_ranges(void* nodes, std::size_t count, std::size_t stride, DType dtype, ReduceOp op,
                                   const LaneTree& tree) = 0;

  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;
  /// @param all  world_size() * mine.size() bytes, in rank order; must not overlap `mine`
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
    wait(start_all_gather(mine, all));
  }
  /// The same, started: until `wait` returned, `mine` stays untouched, and what `all` holds is unspecified.
  virtual Ticket start_all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  /// Contributions of any sizes, 0 among them, by rank.
  std::vector<std::vector<std::byte>> all_gather_any(std::span<const std::byte> mine);
  /// Slice r of the sum goes to rank r, where slices are those of slice_of(count, r, world_size, size_of(dtype)).
  /// @param values  count elements, left unspecified
  /// @param slice   slice_of(...).count elements
  virtual void reduce_scatter(void* values, std::size_t count, DType dtype, ReduceOp op, void* slice) {
    wait(start_reduce_scatter(values, count, dtype, op, slice));
  }
  /// The same, started: until `wait` returned, `values` stay untouched, and what `slice` holds is unspecified.
  virtual Ticket start_reduce_scatter(void* values, std::size_t count, DType dtype, ReduceOp op, void* slice) = 0;
  virtual void barrier() = 0;

  /// Says that this rank has failed: peers on this host throw an error of class `code` that names this rank instead of
  /// waiting for it (Error::is_remote). Returns at once; others see that this rank has left. Not collective.
  virtual void give_up(ExitCode, const std::string& /*sentence*/) noexcept {}

  /// The ranks with the same `color`, in the order of their ranks here, as a new object of the same backend where that
  /// can serve them.
  /// @param color  at least 0
  virtual std::unique_ptr<Collectives> split(int color) = 0;
};

/// Fills `values` with what a rank contributes to a reduction that it has nothing to say to: the result is what the
/// others' values give, to the bit. For an average, whose divisor counts this rank, the sum is.
/// @throws std::logic_error  values of this type cannot be reduced by `op`
/// Not collective.
void fill_with_neutral(void* values, std::size_t count, DType dtype, ReduceOp op);

/// The keys of section `comm`, and the GPU.
struct CommSettings {
  std::string backend = "auto";              ///< auto, self, shm, mpi, hierarchical or nccl
  double timeout_s = 300;                    ///< a wait longer than this throws CommError
  int hosts = 0;                             ///< as for Topology::of
  std::shared_ptr<const Gpu> gpu = nullptr;  ///< where this rank computes; null = on the CPU; no key

  static KeySpecs keys();
  static CommSettings from(const Section& comm);
};

/// Builds the backend for the ranks of `world`. auto: self for one rank, shm where all ranks share a host, mpi where
/// every rank has a host of its own, else hierarchical; nccl for several ranks with GPUs. Collective.
/// @throws ConfigError  a backend that cannot serve these ranks (self for several, shm across hosts, nccl without GPUs,
///                      any other for several GPUs, nccl where ranks share a GPU), on every rank
std::unique_ptr<Collectives> make_collectives(const Communicator& world, const CommSettings& options);

}  // namespace lockstep::mpi
