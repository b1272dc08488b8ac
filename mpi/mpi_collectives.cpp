// SPDX-License-Identifier: BSD-3-Clause
// Plain MPI, for any number of hosts. Point-to-point messages keep the order of summation in our hands (MPI_Allreduce
// may choose any), tell which rank is late, and can be given up.
#include <lockstep/core/error.hpp>

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <sched.h>
#include <string>
#include <utility>
#include <vector>

#include "backends.hpp"
#include "chunks.hpp"
#include "ordered_collectives.hpp"
#include "reduction.hpp"

namespace lockstep::mpi {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::size_t kMessageBytes = 1 << 20;  // of values to one peer at a time; bounds the scratch memory
constexpr int kCallTag = 1;
constexpr int kValuesTag = 2;
constexpr auto kSpinTime = 50us;    // then a third process should get the processor
constexpr auto kYieldTime = 100ms;  // then this is not a message under way but a peer that is late
constexpr timespec kNap{.tv_sec = 0, .tv_nsec = 100'000};

/// Messages under way to and from the peers, waited for together.
class Exchange {
 public:
  Exchange(MPI_Comm comm, int tag) : comm_(comm), tag_(tag) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() {
    for (MPI_Request& request : requests_) {  // after a failure only
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
  }

  void receive(std::byte* to, std::size_t bytes, int peer) {
    check(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, peer, tag_, comm_, add(peer)), "MPI_Irecv");
  }
  void send(const std::byte* from, std::size_t bytes, int peer) {
    check(MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, peer, tag_, comm_, add(peer)), "MPI_Isend");
  }

  void broadcast(std::byte* bytes, std::size_t count, int root) {
    check(MPI_Ibcast(bytes, static_cast<int>(count), MPI_BYTE, root, comm_, add(root)), "MPI_Ibcast");
  }

  bool is_done() {
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
    return done != 0;
  }

  /// The ranks with which a message is still under way: "rank 1, rank 3".
  std::string late_peers() {
    std::vector<int> late;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;
      MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE);
      if (done == 0) late.push_back(peers_[i]);
    }
    std::sort(late.begin(), late.end());
    late.erase(std::unique(late.begin(), late.end()), late.end());
    std::string text;
    for (const int peer : late) text += (text.empty() ? "rank " : ", rank ") + std::to_string(peer);
    return text;
  }

 private:
  MPI_Request* add(int peer) {
    peers_.push_back(peer);
    return &requests_.emplace_back(MPI_REQUEST_NULL);
  }

  MPI_Comm comm_;
  int tag_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;
};

class MpiCollectives final : public OrderedCollectives {
 public:
  MpiCollectives(Communicator comm, const WaitOptions& options)
      : OrderedCollectives(comm.rank(), comm.size()), comm_(std::move(comm)), options_(options) {}

  std::string_view name() const noexcept override { return "mpi"; }

  BucketMemory allocate_bucket(std::size_t bytes) override {
    complete({.call = {.count = bytes, .kind = Kind::allocate_bucket}});
    return allocate_private_bucket(bytes);
  }

  std::unique_ptr<Collectives> split(int color) override {
    complete({.call = {.kind = Kind::split}});
    return make_mpi_collectives(comm_.split(color, rank()), options_);
  }

 protected:
  void perform(const Job& job) override;

 private:
  void meet(const Job& job);
  void all_reduce(const Job& job);
  void reduce_scatter(const Job& job);
  void broadcast(const Job& job);
  void all_gather(const Job& job);

  /// Sums slice r of every rank's values, which begin at `values`, on rank r.
  void reduce_slices(const std::byte* values, std::span<const Slice> slices, std::byte* result, const Job& job);
  void await(Exchange& exchange, const Job& job);
  template <class Visit>
  void for_each_peer(Visit visit) const;

  Communicator comm_;
  WaitOptions options_;
  std::vector<std::byte> scratch_;
  std::vector<const std::byte*> sources_;  ///< of the reduction at hand
};

void MpiCollectives::perform(const Job& job) {
  meet(job);
  switch (job.call.kind) {
    case Kind::all_reduce:
    case Kind::reduce_ranges:
      return all_reduce(job);
    case Kind::reduce_scatter:
      return reduce_scatter(job);
    case Kind::broadcast:
      return broadcast(job);
    case Kind::all_gather:
      return all_gather(job);
    case Kind::barrier:
    case Kind::allocate_bucket:
    case Kind::split:
      return;  // all have come: that is all
  }
}

/// Waits until all ranks have come to a call, and compares the calls.
void MpiCollectives::meet(const Job& job) {
  std::vector<Call> calls(static_cast<std::size_t>(world_size()), job.call);
  Exchange exchange(comm_.handle(), kCallTag);
  for_each_peer([&](int peer) {
    exchange.receive(reinterpret_cast<std::byte*>(&calls[peer]), sizeof(Call), peer);
    exchange.send(reinterpret_cast<const std::byte*>(&job.call), sizeof(Call), peer);
  });
  await(exchange, job);
  const std::string fault = disagreement(world_size(), [&calls](int peer) { return calls[peer]; });
  if (!fault.empty()) throw CommError("comm: " + fault);
}

void MpiCollectives::all_reduce(const Job& job) {
  const std::size_t element_bytes = job.element_bytes();
  std::vector<Slice> slices(static_cast<std::size_t>(world_size()));
  const std::size_t limit = slices.size() * (kMessageBytes / element_bytes);
  for_each_chunk(job.call.count, limit, [&](std::size_t begin, std::size_t count) {
    std::byte* const values = job.values + begin * element_bytes;
    for (int part = 0; part < world_size(); ++part) slices[part] = slice_of(count, part, world_size(), element_bytes);
    const auto place = [&](int part) { return values + slices[part].begin * element_bytes; };
    const auto bytes = [&](int part) { return slices[part].count * element_bytes; };
    reduce_slices(values, slices, place(rank()), job);

    Exchange exchange(comm_.handle(), kValuesTag);
    for_each_peer([&](int peer) {
      exchange.receive(place(peer), bytes(peer), peer);
      exchange.send(place(rank()), bytes(rank()), peer);
    });
    await(exchange, job);
  });
}

void MpiCollectives::reduce_scatter(const Job& job) {
  const std::size_t element_bytes = job.element_bytes();
  std::vector<Slice> pieces(static_cast<std::size_t>(world_size()));
  const std::size_t largest = slice_of(job.call.count, 0, world_size(), element_bytes).count;
  for_each_chunk(largest, kMessageBytes / element_bytes, [&](std::size_t begin, std::size_t count) {
    for (int part = 0; part < world_size(); ++part) {
      const Slice whole = slice_of(job.call.count, part, world_size(), element_bytes);
      const std::size_t first = std::min(begin, whole.count);
      pieces[part] = {.begin = whole.begin + first, .count = std::min(count, whole.count - first)};
    }
    reduce_slices(job.values, pieces, job.result + begin * element_bytes, job);
  });
}

void MpiCollectives::reduce_slices(const std::byte* values, std::span<const Slice> slices, std::byte* result,
                                   const Job& job) {
  const std::size_t element_bytes = job.element_bytes();
  const std::size_t my_begin = slices[rank()].begin * element_bytes;
  const std::size_t my_bytes = slices[rank()].count * element_bytes;
  // The arrays of all ranks in their order: mine lie where they are, the others' go to scratch, one after the other.
  std::size_t most_arrays = 0;
  for (int peer = 0; peer < world_size(); ++peer) most_arrays += job.nodes_of(peer);
  scratch_.resize(std::max(scratch_.size(), most_arrays * my_bytes));
  sources_.clear();
  Exchange exchange(comm_.handle(), kValuesTag);
  for (int peer = 0; peer < world_size(); ++peer) {
    for (std::size_t node = 0; node < job.nodes_of(peer); ++node) {
      if (peer == rank()) {
        sources_.push_back(values + node * job.node_bytes() + my_begin);
        continue;
      }
      std::byte* const arrived = scratch_.data() + sources_.size() * my_bytes;
      sources_.push_back(arrived);
      exchange.receive(arrived, my_bytes, peer);
    }
  }
  for_each_peer([&](int peer) {
    for (std::size_t node = 0; node < job.nodes_of(rank()); ++node) {
      exchange.send(values + node * job.node_bytes() + slices[peer].begin * element_bytes,
                    slices[peer].count * element_bytes, peer);
    }
  });
  await(exchange, job);
  reduce(sources_, std::span(&result, 1), slices[rank()].count, job.reduction());
}

void MpiCollectives::broadcast(const Job& job) {
  for_each_chunk(job.call.count, max_chunk, [&](std::size_t begin, std::size_t bytes) {
    Exchange exchange(comm_.handle(), kValuesTag);
    exchange.broadcast(job.values + begin, bytes, job.call.root);
    await(exchange, job);
  });
}

void MpiCollectives::all_gather(const Job& job) {
  const std::size_t count = job.call.count;
  if (count > 0) std::memcpy(job.result + rank() * count, job.values, count);
  for_each_chunk(count, max_chunk, [&](std::size_t begin, std::size_t bytes) {
    Exchange exchange(comm_.handle(), kValuesTag);
    for_each_peer([&](int peer) {
      exchange.receive(job.result + peer * count + begin, bytes, peer);
      exchange.send(job.values + begin, bytes, peer);
    });
    await(exchange, job);
  });
}

void MpiCollectives::await(Exchange& exchange, const Job& job) {
  const Clock::time_point start = Clock::now();
  while (!exchange.is_done()) {
    const Clock::duration waited = Clock::now() - start;
    const double seconds = std::chrono::duration<double>(waited).count();
    if (seconds >= options_.timeout_s) {
      throw CommError("comm: " + lateness(rank(), seconds, job.call, exchange.late_peers()));
    }
    if (waited >= kYieldTime) {
      nanosleep(&kNap, nullptr);
    } else if (options_.is_crowded || waited >= kSpinTime) {
      sched_yield();
    }
  }
}

/// Visits the other ranks, beginning after this one, so that not all send to the same rank at once.
template <class Visit>
void MpiCollectives::for_each_peer(Visit visit) const {
  for (int distance = 1; distance < world_size(); ++distance) visit((rank() + distance) % world_size());
}

}  // namespace

std::unique_ptr<Collectives> make_mpi_collectives(Communicator comm, const WaitOptions& options) {
  return std::make_unique<MpiCollectives>(std::move(comm), options);
}

}  // namespace lockstep::mpi
