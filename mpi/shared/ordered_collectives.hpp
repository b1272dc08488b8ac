// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mpi/shared/job.hpp"

namespace lockstep::mpi {

/// The part that all backends share: numbers the calls and works the jobs off in order, in `wait` or in a call that
/// blocks. After a failure every member throws: the ranks are out of step.
class OrderedCollectives : public Collectives {
 public:
  explicit OrderedCollectives(RankFacts facts)
      : Collectives(std::move(facts)), family_(std::make_shared<Family>(1, this)) {}
  ~OrderedCollectives() override { std::erase(*family_, this); }

  BucketMemory allocate_bucket(std::size_t bytes) final;
  std::unique_ptr<Collectives> split(int color) final;
  Ticket start(const Job& job) final;
  void wait(Ticket ticket) final;
  void reduce_range(Ticket ticket, Slice range, const RangeConsumer& consume) final;
  void give_up(ExitCode code, const std::string& sentence) noexcept final {
    for (OrderedCollectives* const member : family()) member->notify_peers(sentence, code);
  }

 protected:
  /// An object and all that were split from it: a peer may wait in any of them.
  using Family = std::vector<OrderedCollectives*>;

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
  virtual void take(const Job& job, Slice range, const RangeConsumer& consume) = 0;

  const Family& family() const noexcept { return *family_; }

  /// The numbers of calls between these two are given again afterwards: ranks whose recordings ended at different calls
  /// stay in step.
  void begin_recorded_calls() { before_recording_ = numbers_; }
  void end_recorded_calls();
  bool is_recording_calls() const noexcept { return before_recording_.has_value(); }

 private:
  /// How far the calls have come.
  struct CallNumbers {
    std::uint64_t started = 0;  ///< the last call; the first is 1
    std::uint64_t performed = 0;
    std::uint64_t settled = 0;
    std::uint64_t first_open = 1;    ///< jobs from here on may still be taken by ranges
    std::uint64_t last_closing = 0;  ///< last call that is not taken by ranges itself
  };

  /// Does a call to its end, after all that were started before it.
  void complete(const Job& job) { wait(start(job)); }
  void work_off(std::uint64_t sequence);
  void make_room(std::uint64_t sequence);
  void perform_until(std::uint64_t sequence);
  void require_given(Ticket ticket) const;
  void throw_if_failed() const;
  /// Runs `work`, which waits for `call`; what it throws makes every later call fail.
  template <class Work>
  void guard(const Call& call, Work work);
  /// The same for failures of the communication only: what else `work` throws changes nothing.
  template <class Work>
  void remember_failure(Work work);
  Job& job_at(std::uint64_t sequence) { return jobs_[sequence % kMaxJobs]; }

  std::shared_ptr<Family> family_;
  CallNumbers numbers_;
  std::optional<CallNumbers> before_recording_;  ///< none = calls are not recorded
  std::array<Job, kMaxJobs> jobs_;
  std::string failure_;  ///< failure: what the first failure said
};

}  // namespace lockstep::mpi
