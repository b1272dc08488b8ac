// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mpi/process/chunks.hpp"
#include "mpi/shared/job.hpp"

namespace lockstep::mpi {

/// The part that the backends for several ranks share: numbers the calls, checks their arguments, and works the jobs
/// off in order, in `wait` or in a call that blocks. After a failure every member throws: the ranks are out of step.
class OrderedCollectives : public Collectives {
 public:
  OrderedCollectives(int rank, int world_size)
      : rank_(rank), world_size_(world_size), family_(std::make_shared<Family>(1, this)) {}
  ~OrderedCollectives() override { std::erase(*family_, this); }

  int rank() const noexcept final { return rank_; }
  int world_size() const noexcept final { return world_size_; }

  BucketMemory allocate_bucket(std::size_t bytes) final;
  std::unique_ptr<Collectives> split(int color) final;

  Ticket start_all_reduce(void* values, std::size_t count, DType dtype, ReduceOp op) final;
  Ticket start_reduce_ranges(void* values, std::size_t count, DType dtype, ReduceOp op) final;
  Ticket start_lane_reduce(void* nodes, std::size_t count, std::size_t stride, DType dtype, ReduceOp op,
                           const LaneTree& tree) final;
  Ticket start_lane_ranges(void* nodes, std::size_t count, std::size_t stride, DType dtype, ReduceOp op,
                           const LaneTree& tree) final;
  void wait(Ticket ticket) final;
  void reduce_range(Ticket ticket, Slice range, const RangeConsumer& consume) final;
  void broadcast(std::span<std::byte> bytes, int root) final;
  Ticket start_all_gather(std::span<const std::byte> mine, std::span<std::byte> all) final;
  Ticket start_reduce_scatter(void* values, std::size_t count, DType dtype, ReduceOp op, void* slice) final;
  void barrier() final;

  void give_up(ExitCode code, const std::string& sentence) noexcept final {
    for (OrderedCollectives* const member : *family_) member->notify_peers(sentence, code);
  }

  /// The numbers of recorded calls are given again after the recording: ranks whose recordings ended at different calls
  /// stay in step.
  void begin_capture() override;
  void end_capture() override;
  bool is_capturing() const noexcept final { return before_capture_.has_value(); }

 protected:
  static constexpr std::size_t kMaxElementBytes = 8;
  static constexpr std::uint64_t kMaxJobs = 1024;  ///< maximum jobs: whose particulars are kept

  // The work that allocate_bucket and split do once all ranks have come.
  virtual BucketMemory allocate(std::size_t bytes) = 0;
  virtual std::unique_ptr<Collectives> make_part(int color) = 0;

  /// Lets the peers see that this rank has come to a call. Does not wait.
  virtual void announce(const Job&) {}
  /// Waits for the peers and does this rank's work.
  virtual void perform(const Job& job) = 0;
  /// Waits until all peers have done their work on this job and on those before.
  virtual void settle(const Job&) {}
  /// Lets the peers know that this rank has failed, where they do not.
  virtual void notify_peers(const std::string& /*reason*/, ExitCode) noexcept {}

  /// Instead of `perform`, for a reduction that is taken by ranges: `open`, then `take` for each range.
  virtual void open(const Job& job) { perform(job); }
  virtual void take(const Job& job, Slice range, const RangeConsumer& consume) {
    hand_over(job.values, job, range, consume);
  }

  /// Gives `consume` a range of the job's result.
  /// @param result  the first element of the whole
  static void hand_over(const std::byte* result, const Job& job, Slice range, const RangeConsumer& consume);
  /// Gives it the results for a range, formed piece by piece.
  /// @param arrays_from  gives the places of element `begin` in the arrays of all ranks
  template <class ArraysFrom>
  void reduce_pieces(const Job& job, Slice range, const RangeConsumer& consume, ArraysFrom arrays_from);

 private:
  /// An object and all that were split from it: a peer may wait in any of them.
  using Family = std::vector<OrderedCollectives*>;

  void join(const std::shared_ptr<Family>& family);
  Ticket start(Job job);
  Ticket start_lanes(CallKind kind, void* nodes, std::size_t count, std::size_t stride, DType dtype, ReduceOp op,
                     const LaneTree& tree);
  /// Does a call to its end, after all that were started before it.
  void complete(const Job& job);
  void work_off(std::uint64_t sequence);
  void make_room(std::uint64_t sequence);
  void perform_until(std::uint64_t sequence);
  void require_given(Ticket ticket) const;
  void throw_if_failed() const;
  /// Runs `work`; what it throws makes every later call fail.
  template <class Work>
  void guard(Work work);
  /// The same for failures of the communication only: what else `work` throws changes nothing.
  template <class Work>
  void remember_failure(Work work);
  Job& job_at(std::uint64_t sequence) { return jobs_[sequence % kMaxJobs]; }

  /// How far the calls have come.
  struct CallNumbers {
    std::uint64_t started = 0;  ///< the last call; the first is 1
    std::uint64_t performed = 0;
    std::uint64_t settled = 0;
    std::uint64_t first_open = 1;    ///< jobs from here on may still be taken by ranges
    std::uint64_t last_closing = 0;  ///< last call that is not taken by ranges itself
  };

  int rank_;
  int world_size_;
  std::shared_ptr<Family> family_;
  CallNumbers numbers_;
  std::optional<CallNumbers> before_capture_;  ///< numbers_ when the current capture began; none = no capture is active
  std::array<Job, kMaxJobs> jobs_;
  std::string failure_;  ///< failure: what the first failure said
  alignas(64) std::array<std::byte, kPieceElements * kMaxElementBytes> piece_;
};

template <class ArraysFrom>
void OrderedCollectives::reduce_pieces(const Job& job, Slice range, const RangeConsumer& consume,
                                       ArraysFrom arrays_from) {
  for_each_chunk(range.count, kPieceElements, [&](std::size_t offset, std::size_t count) {
    const std::size_t begin = range.begin + offset;
    const std::span<const std::byte* const> arrays = arrays_from(begin);
    std::byte* const piece = piece_.data();
    reduce(arrays, std::span(&piece, 1), count, job.reduction());
    consume(begin, piece, count);
  });
}

}  // namespace lockstep::mpi
