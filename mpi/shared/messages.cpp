// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/shared/messages.hpp"

#include <lockstep/core/error.hpp>

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <sched.h>
#include <utility>

#include "mpi/process/chunks.hpp"
#include "mpi/process/waits.hpp"

namespace lockstep::mpi {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::size_t kMessageBytes = 1 << 20;  // maximum size of a message; bounds the scratch memory
constexpr int kValuesTag = 2;
constexpr auto kSpinTime = 50us;    // then a third process should get the processor
constexpr auto kYieldTime = 100ms;  // then this is not a message under way but a peer that is late
constexpr auto kLookTime = 50ms;    // time between two checks for the cause of a delay
constexpr timespec kNap{.tv_sec = 0, .tv_nsec = 100'000};

}  // namespace

Exchange::~Exchange() {
  for (MPI_Request& request : requests_) {  // reached after a failure only
    if (request == MPI_REQUEST_NULL) continue;
    comm_.keep_open();
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
}

void Exchange::receive(std::byte* target, std::size_t bytes, int peer) {
  check(MPI_Irecv(target, static_cast<int>(bytes), MPI_BYTE, peer, tag_, comm_.handle(), add(peer)), "MPI_Irecv");
}

void Exchange::send(const std::byte* from, std::size_t bytes, int peer) {
  check(MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, peer, tag_, comm_.handle(), add(peer)), "MPI_Isend");
}

void Exchange::broadcast(std::byte* bytes, std::size_t count, int root) {
  check(MPI_Ibcast(bytes, static_cast<int>(count), MPI_BYTE, root, comm_.handle(), add(root)), "MPI_Ibcast");
}

bool Exchange::is_done() {
  int done = 0;
  check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
  return done != 0;
}

std::vector<int> Exchange::late_peers() const {
  std::vector<int> late;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    int done = 0;
    MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE);
    if (done == 0) late.push_back(peers_[i]);
  }
  std::sort(late.begin(), late.end());
  late.erase(std::unique(late.begin(), late.end()), late.end());
  return late;
}

MPI_Request* Exchange::add(int peer) {
  peers_.push_back(peer);
  return &requests_.emplace_back(MPI_REQUEST_NULL);
}

Messages::Messages(Communicator comm, const WaitOptions& options, Rendezvous* host)
    : comm_(std::move(comm)),
      options_(options),
      host_(host),
      ranks_(static_cast<std::size_t>(comm_.size())),
      world_ranks_(comm_.world_ranks()) {
  std::iota(ranks_.begin(), ranks_.end(), 0);
}

void Messages::meet(const Job& job) {
  std::vector<Call> calls(ranks_.size(), job.call);
  exchange_notices(ranks_, std::span(calls), job.call);
  const std::string fault = disagreement(ranks_, [&calls](int peer) -> const Call& { return calls[peer]; });
  if (!fault.empty()) fail(fault);
}

void Messages::all_reduce(const Job& job) {
  const std::size_t element_bytes = job.element_bytes();
  std::vector<Slice> slices(static_cast<std::size_t>(comm_.size()));
  const std::size_t limit = slices.size() * (kMessageBytes / element_bytes);
  for_each_chunk(job.call.count, limit, [&](std::size_t begin, std::size_t count) {
    std::byte* const values = job.values + begin * element_bytes;
    for (int part = 0; part < comm_.size(); ++part) slices[part] = slice_of(count, part, comm_.size(), element_bytes);
    const auto place = [&](int part) { return values + slices[part].begin * element_bytes; };
    const auto bytes = [&](int part) { return slices[part].count * element_bytes; };
    reduce_slices(values, slices, place(comm_.rank()), job);

    Exchange exchange(comm_, kValuesTag);
    for_each_peer([&](int peer) {
      exchange.receive(place(peer), bytes(peer), peer);
      exchange.send(place(comm_.rank()), bytes(comm_.rank()), peer);
    });
    await(exchange, job.call);
  });
}

void Messages::reduce_scatter(const Job& job) {
  const std::size_t element_bytes = job.element_bytes();
  std::vector<Slice> pieces(static_cast<std::size_t>(comm_.size()));
  const std::size_t largest = slice_of(job.call.count, 0, comm_.size(), element_bytes).count;
  for_each_chunk(largest, kMessageBytes / element_bytes, [&](std::size_t begin, std::size_t count) {
    for (int part = 0; part < comm_.size(); ++part) {
      const Slice whole = slice_of(job.call.count, part, comm_.size(), element_bytes);
      const std::size_t first = std::min(begin, whole.count);
      pieces[part] = {.begin = whole.begin + first, .count = std::min(count, whole.count - first)};
    }
    reduce_slices(job.values, pieces, job.result + begin * element_bytes, job);
  });
}

void Messages::reduce_slices(const std::byte* values, std::span<const Slice> slices, std::byte* result,
                             const Job& job) {
  const std::size_t element_bytes = job.element_bytes();
  const std::size_t my_begin = slices[comm_.rank()].begin * element_bytes;
  const std::size_t my_bytes = slices[comm_.rank()].count * element_bytes;
  // The arrays of all ranks in their order: mine lie where they are, the others' go to scratch, one after the other.
  std::size_t max_arrays = 0;
  for (int peer = 0; peer < comm_.size(); ++peer) max_arrays += job.nodes_of(peer);
  scratch_.resize(std::max(scratch_.size(), max_arrays * my_bytes));
  sources_.clear();
  Exchange exchange(comm_, kValuesTag);
  for (int peer = 0; peer < comm_.size(); ++peer) {
    for (std::size_t node = 0; node < job.nodes_of(peer); ++node) {
      if (peer == comm_.rank()) {
        sources_.push_back(values + node * job.node_bytes() + my_begin);
        continue;
      }
      std::byte* const arrived = scratch_.data() + sources_.size() * my_bytes;
      sources_.push_back(arrived);
      exchange.receive(arrived, my_bytes, peer);
    }
  }
  for_each_peer([&](int peer) {
    for (std::size_t node = 0; node < job.nodes_of(comm_.rank()); ++node) {
      exchange.send(values + node * job.node_bytes() + slices[peer].begin * element_bytes,
                    slices[peer].count * element_bytes, peer);
    }
  });
  await(exchange, job.call);
  reduce(sources_, std::span(&result, 1), slices[comm_.rank()].count, job.reduction());
}

void Messages::broadcast(const Job& job) {
  for_each_chunk(job.call.count, max_chunk, [&](std::size_t begin, std::size_t bytes) {
    Exchange exchange(comm_, kValuesTag);
    exchange.broadcast(job.values + begin, bytes, job.call.root);
    await(exchange, job.call);
  });
}

void Messages::all_gather(const Job& job) {
  const std::size_t count = job.call.count;
  if (count > 0) std::memcpy(job.result + comm_.rank() * count, job.values, count);
  for_each_chunk(count, max_chunk, [&](std::size_t begin, std::size_t bytes) {
    Exchange exchange(comm_, kValuesTag);
    for_each_peer([&](int peer) {
      exchange.receive(job.result + peer * count + begin, bytes, peer);
      exchange.send(job.values + begin, bytes, peer);
    });
    await(exchange, job.call);
  });
}

void Messages::await(Exchange& exchange, const Call& call, const std::string& peer_name) {
  const Clock::time_point start = Clock::now();
  Clock::time_point next_look = start + kLookTime;
  while (!exchange.is_done()) {
    const Clock::time_point now = Clock::now();
    if (now >= next_look) {
      look_around(exchange, call, std::chrono::duration<double>(now - start).count(), peer_name);
      next_look = now + kLookTime;
    }
    if (now - start >= kYieldTime) {
      nanosleep(&kNap, nullptr);
    } else if (options_.is_oversubscribed || now - start >= kSpinTime) {
      sched_yield();
    }
  }
}

/// Throws where waiting for longer is of no use.
void Messages::look_around(const Exchange& exchange, const Call& call, double seconds, const std::string& peer_name) {
  if (host_ != nullptr) host_->throw_if_given_up();
  check_wait();
  const std::vector<int> late_peers = exchange.late_peers();
  // A message that a peer sent before it went elsewhere may still be under way at first.
  constexpr double kSettledSeconds = 0.5;
  for (const int peer : late_peers) {
    if (seconds < kSettledSeconds || !is_crossed(world_ranks_[peer], 0)) continue;
    const std::vector<int> still_late = exchange.late_peers();  // it may just have sent, and waited elsewhere
    if (std::binary_search(still_late.begin(), still_late.end(), peer))
      fail(cross_communicator_deadlock(comm_.rank(), peer, call));
  }
  if (seconds < options_.timeout_s) return;
  std::string late;
  for (const int peer : late_peers) late += (late.empty() ? "" : ", ") + peer_name + std::to_string(peer);
  if (!late.empty()) fail(lateness(comm_.rank(), seconds, call, late));
}

/// A rank that has sent its call to this one continues only after it has received the same call.
bool Messages::is_awaited_by(int world_rank, std::uint32_t peer_thread) {
  if (peer_thread != 0) return false;  // it waits in shared memory; which thread waits here is not known
  const auto found = std::find(world_ranks_.begin(), world_ranks_.end(), world_rank);
  if (found == world_ranks_.end()) return false;
  int is_there = 0;
  MPI_Iprobe(static_cast<int>(found - world_ranks_.begin()), kCallTag, comm_.handle(), &is_there, MPI_STATUS_IGNORE);
  return is_there != 0;
}

void Messages::fail(const std::string& reason) {
  note_end();
  if (host_ != nullptr) host_->give_up(reason);
  throw CommError("comm: " + reason);
}

/// Visits the other ranks, beginning after this one, so that not all send to the same rank at once.
template <class Visit>
void Messages::for_each_peer(Visit visit) const {
  for (int distance = 1; distance < comm_.size(); ++distance) visit((comm_.rank() + distance) % comm_.size());
}

}  // namespace lockstep::mpi
