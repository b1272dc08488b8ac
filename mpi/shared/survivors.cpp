// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/shared/survivors.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <span>
#include <unistd.h>
#include <utility>

#include "core/system/process.hpp"
#include "mpi/process/topology.hpp"
#include "mpi/process/waits.hpp"

namespace lockstep::mpi {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int kSignTag = 1;
constexpr int kNewsTag = 2;
constexpr auto kCallLimit = 5s;  // a call of MPI among those who are left takes milliseconds
constexpr auto kPoll = 2ms;      // time between two looks at processes and news
constexpr auto kSignTime = 1s;
constexpr auto kSilenceOfLost = 10s;
constexpr auto kGuardPoll = 100ms;  // time between two looks of the guard thread

}  // namespace

Survivors::Survivors(const Communicator& world, std::chrono::duration<double> limit,
                     std::function<void()> before_leaving)
    : news_(world.handle()),
      rank_(world.rank()),
      limit_(std::chrono::duration_cast<Clock::duration>(limit)),
      before_leaving_(std::move(before_leaving)),
      fates_(static_cast<std::size_t>(world.size()), Fate::alive),
      heard_(fates_.size(), 0),
      host_of_rank_(Topology::of(world).host_of_rank),
      host_names_(world.all_gather(host_name())) {
  watch_ = std::make_unique<PeerWatch>(processes_of_host(world, host_of_rank_));
  set_wait_check([this] {
    if (is_shrinking_) return;
    if (const std::string text = lost(); !text.empty()) throw CommError("comm: " + text);
  });
  guard_ = std::jthread([this](const std::stop_token& stop) { keep_watch(stop); });
}

Survivors::~Survivors() {
  set_wait_check({});
  if (has_lost_ranks()) news_.keep_open();
}

void Survivors::leave(const std::string& reason) const {
  std::fprintf(stderr, "lockstep: %s; this rank ends, so that the job can be started again\n", reason.c_str());
  std::fflush(nullptr);
  before_leaving_();
  _exit(static_cast<int>(ExitCode::communication));
}

/// Takes note of deaths on this host and of what others have reported.
void Survivors::look() {
  for (std::size_t rank = 0; rank < fates_.size(); ++rank) {
    if (fates_[rank] == Fate::alive && watch_->is_dead(static_cast<int>(rank))) fates_[rank] = Fate::dead;
  }
  while (true) {
    int is_there = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, kNewsTag, news_.handle(), &is_there, &status), "MPI_Iprobe");
    if (is_there == 0) break;
    std::vector<char> report(fates_.size());
    check(MPI_Recv(report.data(), static_cast<int>(report.size()), MPI_CHAR, status.MPI_SOURCE, kNewsTag,
                   news_.handle(), MPI_STATUS_IGNORE),
          "MPI_Recv");
    ++heard_[static_cast<std::size_t>(status.MPI_SOURCE)];
    for (std::size_t rank = 0; rank < fates_.size(); ++rank) {
      if (fates_[rank] == Fate::alive && report[rank] != 0) fates_[rank] = Fate::dead;
    }
  }
}

std::string Survivors::lost() {
  const std::lock_guard lock(mutex_);
  look();
  std::string ranks;
  int count = 0;
  for (std::size_t rank = 0; rank < fates_.size(); ++rank) {
    if (fates_[rank] != Fate::dead) continue;
    ranks += (count++ > 0 ? ", " : "") + std::to_string(rank);
    if (host_names_[rank] != host_names_[static_cast<std::size_t>(rank_)]) ranks += " on " + host_names_[rank];
  }
  if (count == 0) return "";
  note_loss();
  return (count == 1 ? "rank " : "ranks ") + ranks + (count == 1 ? " has died" : " have died");
}

bool Survivors::awaits_loss(std::chrono::milliseconds limit) {
  const Clock::time_point end = Clock::now() + limit;
  while (lost().empty()) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

/// Reports the losses to those who are left. A short message is on its way when the call returns.
void Survivors::tell_others() {
  const auto report = std::make_shared<std::vector<char>>();
  for (const Fate fate : fates_) report->push_back(fate == Fate::dead ? 1 : 0);
  static auto* const kept = new std::vector<std::shared_ptr<std::vector<char>>>;  // MPI may read them for long
  kept->push_back(report);
  for (const int rank : alive()) {
    if (rank == rank_) continue;
    send_to(rank, kNewsTag, *report);
  }
}

/// Sends a short message without waiting. One that MPI refuses is left out: its receiver may just have died.
void Survivors::send_to(int rank, int tag, std::span<const char> message) const {
  MPI_Request request = MPI_REQUEST_NULL;
  const int code =
      MPI_Isend(message.data(), static_cast<int>(message.size()), MPI_CHAR, rank, tag, news_.handle(), &request);
  if (code == MPI_SUCCESS) MPI_Request_free(&request);
}

std::vector<int> Survivors::alive() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < fates_.size(); ++rank) {
    if (fates_[rank] == Fate::alive) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

/// Waits until everyone who is left has reported losses, too, and so has left what it was doing.
void Survivors::await_reports() {
  const Clock::time_point end = Clock::now() + limit_;
  while (true) {
    int late = -1;
    {
      const UnboundedCall unbounded;
      const std::lock_guard lock(mutex_);
      look();
      for (const int rank : alive()) {
        if (rank != rank_ && heard_[static_cast<std::size_t>(rank)] <= shrinks_) late = rank;
      }
    }
    if (late < 0) return;
    if (Clock::now() >= end) leave("rank " + std::to_string(late) + " does not answer after a loss of ranks");
    std::this_thread::sleep_for(kPoll);
  }
}

Communicator Survivors::shrink() {
  is_shrinking_ = true;
  {
    const UnboundedCall unbounded;
    const std::lock_guard lock(mutex_);
    look();
    tell_others();
  }
  await_reports();
  const std::vector<int> left = alive();
  const UnboundedCall unbounded;  // the guard ends it
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  check(MPI_Comm_group(news_.handle(), &world), "MPI_Comm_group");
  check(MPI_Group_incl(world, static_cast<int>(left.size()), left.data(), &group), "MPI_Group_incl");
  check(MPI_Comm_create_group(news_.handle(), group, kNewsTag + 1 + shrinks_, &made), "MPI_Comm_create_group");
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  Communicator survivors(made);
  check(MPI_Comm_free(&made), "MPI_Comm_free");
  survivors.barrier();
  const std::lock_guard lock(mutex_);
  for (Fate& fate : fates_) {
    if (fate == Fate::dead) fate = Fate::left_out;
  }
  ++shrinks_;
  is_shrinking_ = false;
  return survivors;
}

void Survivors::keep_watch(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::this_thread::sleep_for(kGuardPoll);
    end_hanging_call();
    // A thread that hangs in MPI may hold the lock.
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) exchange_signs_of_life();
  }
}

void Survivors::end_hanging_call() {
  const auto duration = UnboundedCall::duration();
  if (!duration || *duration < kCallLimit) return;
  {
    const std::unique_lock lock(mutex_, kCallLimit);  // a thread that hangs in MPI may hold it
    if (lock) look();
    const bool is_loss_seen = lock ? std::ranges::count(fates_, Fate::dead) > 0 : has_lost_ranks();
    if (!is_loss_seen) return;
  }
  leave("a call of MPI does not return after a loss of ranks");
}

/// The lowest ranks of hosts that are left.
std::vector<int> Survivors::first_ranks() const {
  std::vector<int> firsts;
  std::set<int> hosts;
  for (const int rank : alive()) {
    if (hosts.insert(host_of_rank_[static_cast<std::size_t>(rank)]).second) firsts.push_back(rank);
  }
  return firsts;
}

void Survivors::exchange_signs_of_life() {
  const std::vector<int> firsts = first_ranks();
  const auto mine = std::ranges::find(firsts, rank_);
  if (firsts.size() < 2 || mine == firsts.end()) return;
  const auto place = static_cast<std::size_t>(mine - firsts.begin());
  const int next = firsts[(place + 1) % firsts.size()];
  const int before = firsts[(place + firsts.size() - 1) % firsts.size()];
  const Clock::time_point now = Clock::now();
  if (std::exchange(watched_, before) != before) heard_of_watched_ = now;
  if (now - sent_sign_ >= kSignTime) {
    static const char sign = 0;
    send_to(next, kSignTag, std::span(&sign, 1));
    sent_sign_ = now;
  }
  for (int is_there = 1; is_there != 0;) {
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, kSignTag, news_.handle(), &is_there, &status), "MPI_Iprobe");
    if (is_there == 0) break;
    char sign = 0;
    check(MPI_Recv(&sign, 1, MPI_CHAR, status.MPI_SOURCE, kSignTag, news_.handle(), MPI_STATUS_IGNORE), "MPI_Recv");
    if (status.MPI_SOURCE == before) heard_of_watched_ = now;
  }
  if (now - heard_of_watched_ < kSilenceOfLost) return;
  const int host = host_of_rank_[static_cast<std::size_t>(before)];
  for (std::size_t rank = 0; rank < fates_.size(); ++rank) {
    if (host_of_rank_[rank] == host && fates_[rank] == Fate::alive) fates_[rank] = Fate::dead;
  }
}

}  // namespace lockstep::mpi
