// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/shared/rendezvous.hpp"

#include <time.h>

#include <algorithm>
#include <array>
#include <limits>
#include <linux/futex.h>
#include <mutex>
#include <poll.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace lockstep::mpi {

namespace {

std::mutex places_mutex;

std::vector<WaitPoint*>& places() {
  static std::vector<WaitPoint*> all;
  return all;
}

using namespace std::chrono_literals;

constexpr int kSpins = 200;              // some 10 us; a yield costs little more where nobody waits for it
constexpr auto kSpinBeforeSleep = 50us;  // then a third process should get the processor
constexpr auto kSleepTime = 100ms;       // maximum time between two checks of the peers' health
constexpr std::size_t kLineBytes = 64;   // no two ranks write to the same cache line
constexpr std::size_t kReasonBytes = 1024;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  const timespec limit{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kSleepTime).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

}  // namespace

WaitPoint::WaitPoint() {
  const std::lock_guard<std::mutex> hold(places_mutex);
  places().push_back(this);
}

WaitPoint::~WaitPoint() {
  const std::lock_guard<std::mutex> hold(places_mutex);
  std::erase(places(), this);
}

std::uint32_t WaitPoint::this_thread() {
  thread_local const auto number = static_cast<std::uint32_t>(syscall(SYS_gettid));
  return number;
}

bool WaitPoint::is_crossed(int world_rank, std::uint32_t peer_thread) const {
  const std::lock_guard<std::mutex> hold(places_mutex);
  return std::any_of(places().begin(), places().end(), [&](WaitPoint* place) {
    const bool is_mine = place->user_.load(std::memory_order_relaxed) == this_thread();
    return place != this && is_mine && place->is_awaited_by(world_rank, peer_thread);
  });
}

std::string cross_communicator_deadlock(int rank, int peer, const Call& call) {
  const std::string here = "rank " + std::to_string(rank);
  const std::string there = "rank " + std::to_string(peer);
  return here + " waits for " + there + " in " + describe(call) + ", while " + there + " waits for " + here +
         " in an operation of another communicator; use the communicators in the same order on all ranks";
}

ProcessId ProcessId::mine() {
  struct stat status {};
  const bool is_known = stat("/proc/self/ns/pid", &status) == 0;
  return {.pid = getpid(), .name_space = is_known ? status.st_ino : 0};
}

std::vector<ProcessId> processes_of_host(const Communicator& comm, const std::vector<int>& host_of_rank) {
  const ProcessId mine = ProcessId::mine();
  const std::vector<std::uint64_t> pair = {static_cast<std::uint64_t>(mine.pid), mine.name_space};
  std::vector<std::uint64_t> all(pair.size() * static_cast<std::size_t>(comm.size()));
  comm.all_gather(std::span(pair), std::span(all));
  std::vector<ProcessId> processes(host_of_rank.size());
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    if (host_of_rank[rank] != host_of_rank[static_cast<std::size_t>(comm.rank())]) continue;
    processes[rank] = {.pid = static_cast<pid_t>(all[2 * rank]), .name_space = all[2 * rank + 1]};
  }
  return processes;
}

PeerWatch::PeerWatch(const std::vector<ProcessId>& peers) {
  const ProcessId mine = ProcessId::mine();
  for (const ProcessId& peer : peers) {
    const bool is_visible = peer.name_space == mine.name_space && peer.pid != mine.pid;
    descriptors_.push_back(is_visible ? static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)) : -1);
  }
}

PeerWatch::~PeerWatch() {
  for (const int descriptor : descriptors_) {
    if (descriptor >= 0) close(descriptor);
  }
}

bool PeerWatch::is_dead(int peer) const {
  pollfd entry{.fd = descriptors_[peer], .events = POLLIN, .revents = 0};
  return entry.fd >= 0 && poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0;
}

struct alignas(kLineBytes) Rendezvous::Line {
  std::atomic<std::uint64_t> arrived;
  std::atomic<std::uint64_t> progress;
  std::atomic<std::uint32_t> changes;   ///< grows with every change of this line; sleepers wait on it
  std::atomic<std::uint32_t> sleepers;  ///< ranks that may be asleep on `changes`
  std::atomic<std::uint32_t> has_left;
  std::atomic<std::uint32_t> thread;            ///< thread of the rank's latest call
  std::atomic<std::uint64_t> awaited_arrival;   ///< arrival that it waits for, if it has waited for long
  std::atomic<std::uint64_t> awaited_progress;  ///< likewise
  ProcessId process;
};

struct alignas(kLineBytes) Rendezvous::Board {
  enum State : std::uint32_t { fine, writing, given_up };
  std::atomic<std::uint32_t> state;
  std::int32_t rank;
  ExitCode code;
  std::array<char, kReasonBytes> reason;
};

std::size_t Rendezvous::bytes_for(int ranks) {
  return sizeof(Board) + ranks * (sizeof(Line) + kPostings * sizeof(Posting));
}

Rendezvous::Rendezvous(const Communicator& host, std::vector<int> names, std::span<std::byte> memory,
                       const WaitOptions& options)
    : options_(options),
      names_(std::move(names)),
      world_ranks_(host.world_ranks()),
      rank_(host.rank()),
      size_(host.size()),
      board_(reinterpret_cast<Board*>(memory.data())),
      lines_(reinterpret_cast<Line*>(board_ + 1), static_cast<std::size_t>(size_)),
      postings_(reinterpret_cast<Posting*>(lines_.data() + lines_.size()), size_ * kPostings) {
  lines_[rank_].process = ProcessId::mine();
  lines_[rank_].thread.store(this_thread(), std::memory_order_relaxed);
  note_use();
  host.barrier();
  std::vector<ProcessId> processes;
  for (const Line& line : lines_) processes.push_back(line.process);
  watch_ = std::make_unique<PeerWatch>(processes);
}

Rendezvous::~Rendezvous() {
  note_end();
  lines_[rank_].has_left.store(1, std::memory_order_release);
  lines_[rank_].changes.fetch_add(1);
  futex_wake_all(lines_[rank_].changes);
}

const Posting& Rendezvous::posting(int rank, std::uint64_t sequence) const {
  return postings_[rank * kPostings + sequence % kPostings];
}

void Rendezvous::arrive(const Posting& posting) {
  note_use();
  lines_[rank_].thread.store(this_thread(), std::memory_order_relaxed);
  arrived_ = posting.call.sequence;
  postings_[rank_ * kPostings + posting.call.sequence % kPostings] = posting;
  publish(lines_[rank_].arrived, posting.call.sequence);
}

void Rendezvous::advance() { publish(lines_[rank_].progress, ++progress_); }

void Rendezvous::publish(std::atomic<std::uint64_t>& counter, std::uint64_t value) {
  Line& line = lines_[rank_];
  counter.store(value, std::memory_order_release);
  // Written in one total order with sleep_until_changed: either the sleeper sees the change, or this rank sees the
  // sleeper.
  line.changes.fetch_add(1);
  if (line.sleepers.load() > 0) futex_wake_all(line.changes);
}

void Rendezvous::await_arrival(const Call& call) { await(&Line::arrived, call.sequence, call); }

void Rendezvous::await_progress(std::uint64_t progress, const Call& call) { await(&Line::progress, progress, call); }

/// @param behind  first rank that may be behind; moved on to the first that is
bool Rendezvous::has_reached(Counter counter, std::uint64_t value, int& behind) const {
  while (behind < size_ && (lines_[behind].*counter).load(std::memory_order_acquire) >= value) ++behind;
  return behind == size_;
}

void Rendezvous::await(Counter counter, std::uint64_t value, const Call& call) {
  int behind = 0;
  const int spins = options_.is_oversubscribed ? 1 : kSpins;
  for (int i = 0; i < spins; ++i) {
    if (has_reached(counter, value, behind)) return;
    pause_briefly();
  }
  await_patiently(counter, value, call, behind);
}

void Rendezvous::await_patiently(Counter counter, std::uint64_t value, const Call& call, int behind) {
  const SteadyClock::time_point start = SteadyClock::now();
  while (SteadyClock::now() - start < kSpinBeforeSleep) {
    sched_yield();
    if (has_reached(counter, value, behind)) return;
  }
  Line& mine = lines_[rank_];
  std::atomic<std::uint64_t>& awaited = counter == &Line::arrived ? mine.awaited_arrival : mine.awaited_progress;
  awaited.store(value, std::memory_order_release);
  while (!has_reached(counter, value, behind)) {
    throw_if_hopeless(counter, value, call, start);
    sleep_until_changed(counter, value, behind);
  }
  awaited.store(0, std::memory_order_release);  // not after a failure: peers that wait elsewhere shall see why
}

bool Rendezvous::is_awaited_by(int world_rank, std::uint32_t peer_thread) {
  const auto found = std::find(world_ranks_.begin(), world_ranks_.end(), world_rank);
  if (found == world_ranks_.end()) return false;
  const Line& line = lines_[static_cast<std::size_t>(found - world_ranks_.begin())];
  const bool is_waiting = line.awaited_arrival.load(std::memory_order_acquire) > arrived_ ||
                          line.awaited_progress.load(std::memory_order_acquire) > progress_;
  return is_waiting && line.thread.load(std::memory_order_relaxed) == peer_thread;
}

void Rendezvous::sleep_until_changed(Counter counter, std::uint64_t value, int rank) {
  Line& line = lines_[rank];
  line.sleepers.fetch_add(1);
  const std::uint32_t seen = line.changes.load();
  const bool is_fine = board_->state.load() == Board::fine;
  if (is_fine && (line.*counter).load(std::memory_order_acquire) < value) futex_wait(line.changes, seen);
  line.sleepers.fetch_sub(1);
}

void Rendezvous::throw_if_hopeless(Counter counter, std::uint64_t value, const Call& call,
                                   SteadyClock::time_point start) {
  throw_if_given_up();
  const std::string here = "rank " + std::to_string(names_[rank_]) + " waited for it in " + describe(call);
  std::string late;
  for (int rank = 0; rank < size_; ++rank) {
    const bool has_left = lines_[rank].has_left.load(std::memory_order_acquire) != 0;
    const bool is_dead = watch_->is_dead(rank);
    const bool waits_elsewhere = is_crossed(world_ranks_[rank], lines_[rank].thread.load(std::memory_order_relaxed));
    // Read after the three: what a rank did before it died, left or waited elsewhere still counts.
    if ((lines_[rank].*counter).load(std::memory_order_acquire) >= value) continue;
    if (is_dead) give_up(where_is(rank) + " has died while " + here);
    if (has_left) give_up(where_is(rank) + " has ended while " + here);
    if (waits_elsewhere) give_up(cross_communicator_deadlock(names_[rank_], names_[rank], call));
    late += (late.empty() ? "" : ", ") + where_is(rank);
  }
  const std::chrono::duration<double> waited = SteadyClock::now() - start;
  const double limit_s = options_.timeout_s + (counter == &Line::progress ? options_.grace_s : 0);
  if (waited.count() < limit_s || late.empty()) return;
  give_up(lateness(names_[rank_], waited.count(), call, late));
}

std::string Rendezvous::where_is(int rank) const {
  const std::uint64_t arrived = lines_[rank].arrived.load(std::memory_order_acquire);
  const std::string place = arrived == 0 ? "not seen yet" : "last seen in " + describe(posting(rank, arrived).call);
  return "rank " + std::to_string(names_[rank]) + " (" + place + ")";
}

void Rendezvous::throw_if_given_up() {
  if (board_->state.load(std::memory_order_acquire) != Board::given_up) return;
  note_end();
  const std::string name = "rank " + std::to_string(names_[board_->rank]);
  if (board_->code != ExitCode::communication) throw_remote(board_->code, name + ": " + board_->reason.data());
  const std::string who = board_->rank == rank_ ? "this rank" : name;
  throw CommError("comm: " + who + " failed: " + board_->reason.data());
}

void Rendezvous::notify_peers(const std::string& reason, ExitCode code) noexcept {
  std::uint32_t expected = Board::fine;
  if (!board_->state.compare_exchange_strong(expected, Board::writing)) return;
  board_->rank = rank_;
  board_->code = code;
  reason.copy(board_->reason.data(), kReasonBytes - 1);
  board_->state.store(Board::given_up, std::memory_order_release);
  for (Line& line : lines_) {
    line.changes.fetch_add(1);
    futex_wake_all(line.changes);
  }
}

void Rendezvous::give_up(const std::string& reason) {
  note_end();
  notify_peers(reason);
  throw CommError("comm: " + reason);
}

}  // namespace lockstep::mpi
