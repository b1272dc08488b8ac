// SPDX-License-Identifier: BSD-3-Clause
#include "support/stand_in_gpu.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>

#include "mpi/gpu/gpu.hpp"
#include "mpi/shared/job.hpp"

namespace lockstep::mpi::gpu {

struct Event {
  bool is_over = false;
  bool is_captured = false;
};

/// Messages of a link go through rank 0 of it.
struct Link {
  MPI_Comm comm = MPI_COMM_NULL;
  int tag = 0;
  int rank = 0;
  std::vector<int> world_ranks = {};
  int polls_left = 0;
  bool is_aborted = false;
  std::function<void()> exchange = {};                                // completes the operation that is under way
  std::vector<std::function<void()>> results = {};                    // not yet to be seen
  std::map<Event*, std::vector<std::function<void()>>> waiting = {};  // results that an event shows
};

struct Graph {
  std::vector<std::function<void()>> work = {};
  bool is_done = false;  // recorded work was done and is not yet launched
  bool was_launched = false;
};

}  // namespace lockstep::mpi::gpu

namespace lockstep::testing {

namespace {

using mpi::ReduceOp;
using mpi::gpu::Event;
using mpi::gpu::Fault;
using mpi::gpu::Graph;
using mpi::gpu::Link;

StandIn state;
std::string poll_fault;
int aborts = 0;
std::recursive_mutex mutex;
std::map<const std::byte*, std::size_t> device_memory;
Graph* recording = nullptr;

template <class Work>
Fault guarded(Work work) {
  thread_local std::string text;
  const std::lock_guard hold(mutex);
  try {
    work();
    return nullptr;
  } catch (const std::exception& error) {
    text = error.what();
    return text.c_str();
  }
}

MPI_Comm messages() {
  static MPI_Comm comm = [] {
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
    return made;
  }();
  return comm;
}

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

void require_idle(const Link& link) {
  if (link.is_aborted) throw std::runtime_error("the link was aborted");
  if (link.polls_left > 0) throw std::runtime_error("a call on a link that is under way");
}

/// The arrays of all ranks, on all ranks.
std::vector<std::vector<std::byte>> gather(const Link& link, const std::vector<std::byte>& mine) {
  const auto bytes = static_cast<int>(mine.size());
  std::vector<std::vector<std::byte>> all(link.world_ranks.size(), std::vector<std::byte>(mine.size()));
  std::vector<MPI_Request> requests;
  for (std::size_t peer = 0; peer < all.size(); ++peer) {
    const int position = link.world_ranks[peer];
    MPI_Irecv(all[peer].data(), bytes, MPI_BYTE, position, link.tag, link.comm, &requests.emplace_back());
    MPI_Isend(mine.data(), bytes, MPI_BYTE, position, link.tag, link.comm, &requests.emplace_back());
  }
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  return all;
}

using Bytes = std::vector<std::byte>;

/// Takes the values now, as a GPU does at some time after the call; the peers' come when the link is polled.
/// @param take  gets the values of this rank
/// @param use   gets the arrays of all ranks and says what becomes visible
void operate(Link* link, const std::string& name, const std::function<Bytes()>& take,
             const std::function<std::function<void()>(const std::vector<Bytes>&)>& use) {
  require_idle(*link);
  Bytes mine = take();
  state.calls.push_back(name + " " + std::to_string(mine.size()));
  if (recording != nullptr) recording->work.push_back([link, take, use] { use(gather(*link, take()))(); });
  link->polls_left = state.polls;
  link->exchange = [link, use, mine = std::move(mine)] { link->results.push_back(use(gather(*link, mine))); };
}

std::function<Bytes()> bytes_at(const void* memory, std::size_t bytes) {
  const auto* const from = static_cast<const std::byte*>(memory);
  return [from, bytes] { return Bytes(from, from + bytes); };
}

std::vector<std::byte> reduced(const std::vector<std::vector<std::byte>>& all, DType dtype, ReduceOp op) {
  std::vector<const std::byte*> sources;
  for (const auto& array : all) sources.push_back(array.data());
  std::vector<std::byte> result(all[0].size());
  std::byte* const target = result.data();
  mpi::reduce(sources, std::span(&target, 1), result.size() / size_of(dtype), {.dtype = dtype, .op = op});
  return result;
}

std::function<void()> show(void* destination, std::vector<std::byte> values) {
  return [destination, values = std::move(values)] { std::memcpy(destination, values.data(), values.size()); };
}

Fault use_device(int, mpi::gpu::DeviceFacts* facts) {
  const std::string uuid = state.uuid + (state.shares_gpu ? "0" : std::to_string(world_rank()));
  uuid.copy(facts->uuid, sizeof(facts->uuid) - 1);
  const std::string bus_id =
      "0000:0" + std::to_string(state.shares_gpu || state.shares_bus ? 0 : world_rank()) + ":00.0";
  bus_id.copy(facts->bus_id, sizeof(facts->bus_id) - 1);
  return nullptr;
}

Fault locate(const void* memory, int* device, bool* is_host) {
  const std::lock_guard hold(mutex);
  const auto* const address = static_cast<const std::byte*>(memory);
  auto next = device_memory.upper_bound(address);
  const bool is_device = state.has_all_memory ||
                         (next != device_memory.begin() && address < std::prev(next)->first + std::prev(next)->second);
  *device = is_device ? 0 : -1;
  *is_host = !is_device;
  return nullptr;
}

Fault make_unique_id(char* id) {
  static int last = 0;
  return guarded([&] {
    if (!state.id_fault.empty()) throw std::runtime_error(state.id_fault);
    const int facts[2] = {world_rank(), ++last};
    std::memcpy(id, facts, sizeof(facts));
  });
}

/// Rank 0, whose place the id names, collects and sends round the places of all.
Fault open(int, const char* id, int ranks, int rank, Link** link) {
  return guarded([&] {
    int facts[2];
    std::memcpy(facts, id, sizeof(facts));
    *link = new Link{.comm = messages(), .tag = 1 + facts[0] * 1000 + facts[1], .rank = rank};
    ++state.links;
    Link& made = **link;
    made.world_ranks.resize(static_cast<std::size_t>(ranks));
    if (state.never_connects) {
      made.polls_left = 1 << 30;
      return;
    }
    const int mine[2] = {rank, world_rank()};
    if (rank != 0) {
      MPI_Send(mine, 2, MPI_INT, facts[0], made.tag, made.comm);
      MPI_Recv(made.world_ranks.data(), ranks, MPI_INT, facts[0], made.tag, made.comm, MPI_STATUS_IGNORE);
    } else {
      made.world_ranks[0] = mine[1];
      for (int i = 1; i < ranks; ++i) {
        int other[2];
        MPI_Recv(other, 2, MPI_INT, MPI_ANY_SOURCE, made.tag, made.comm, MPI_STATUS_IGNORE);
        made.world_ranks[other[0]] = other[1];
      }
      for (int i = 1; i < ranks; ++i) {
        MPI_Send(made.world_ranks.data(), ranks, MPI_INT, made.world_ranks[i], made.tag, made.comm);
      }
    }
    made.polls_left = state.polls;
  });
}

Fault poll(Link* link, bool* is_under_way) {
  return guarded([&] {
    if (link->is_aborted) throw std::runtime_error("the link was aborted");
    if (!poll_fault.empty()) throw std::runtime_error(poll_fault);
    if (link->polls_left > 0 && --link->polls_left == 0 && link->exchange && !state.never_ends) {
      std::exchange(link->exchange, nullptr)();
    }
    *is_under_way = link->polls_left > 0;
  });
}

Fault finalize(Link* link) {
  return guarded([&] {
    require_idle(*link);
    link->polls_left = state.polls;
  });
}

Fault abort(Link* link) {
  std::this_thread::sleep_for(std::chrono::duration<double>(state.abort_seconds));
  return guarded([&] {
    if (!link->is_aborted) ++aborts;
    link->is_aborted = true;
  });
}

Fault close(Link* link) {
  return guarded([&] {
    for (const auto& [event, results] : link->waiting) delete event;
    delete link;
    --state.links;
  });
}

Fault allocate(Link* link, std::size_t bytes, void** memory, void** registration) {
  return guarded([&] {
    require_idle(*link);
    if (!state.allocation_fault.empty()) throw std::runtime_error(state.allocation_fault);
    *memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    std::memset(*memory, 0, bytes);
    *registration = *memory;
    device_memory[static_cast<std::byte*>(*memory)] = bytes;
    ++state.allocations;
  });
}

Fault release(Link*, void* memory, void* registration) {
  return guarded([&] {
    if (registration != memory) throw std::logic_error("registered elsewhere");
    device_memory.erase(static_cast<std::byte*>(memory));
    std::free(memory);
    --state.allocations;
  });
}

Fault all_reduce(Link* link, void* values, std::size_t count, DType dtype, ReduceOp op) {
  return guarded([&] {
    operate(link, std::string("all_reduce ") + mpi::name_of(op), bytes_at(values, count * size_of(dtype)),
            [=](const auto& all) { return show(values, reduced(all, dtype, op)); });
  });
}

Fault broadcast(Link* link, void* memory, std::size_t bytes, int root) {
  return guarded([&] {
    operate(link, "broadcast", bytes_at(memory, bytes), [=](const auto& all) { return show(memory, all[root]); });
  });
}

Fault all_gather(Link* link, const void* mine, void* target, std::size_t bytes) {
  return guarded([&] {
    operate(link, "all_gather", bytes_at(mine, bytes), [=](const auto& all) {
      std::vector<std::byte> combined;
      for (const auto& part : all) combined.insert(combined.end(), part.begin(), part.end());
      return show(target, combined);
    });
  });
}

Fault reduce_scatter(Link* link, const void* const* slices, const std::size_t* counts, void* mine, DType dtype,
                     ReduceOp op) {
  return guarded([&] {
    const auto ranks = static_cast<std::ptrdiff_t>(link->world_ranks.size());
    const std::vector<const void*> places(slices, slices + ranks);
    const std::vector<std::size_t> lengths(counts, counts + ranks);
    const std::size_t begin = std::accumulate(counts, counts + link->rank, std::size_t{0}) * size_of(dtype);
    const auto take = [=] {
      Bytes values;
      for (std::size_t owner = 0; owner < places.size(); ++owner) {
        const auto* const from = static_cast<const std::byte*>(places[owner]);
        values.insert(values.end(), from, from + lengths[owner] * size_of(dtype));
      }
      return values;
    };
    const std::size_t bytes = counts[link->rank] * size_of(dtype);
    operate(link, "reduce_scatter", take, [=](const auto& all) {
      const std::vector<std::byte> result = reduced(all, dtype, op);
      const auto from = result.begin() + static_cast<std::ptrdiff_t>(begin);
      return show(mine, {from, from + static_cast<std::ptrdiff_t>(bytes)});
    });
  });
}

Fault mark(Link* link, Event** event) {
  return guarded([&] {
    require_idle(*link);
    *event = new Event{.is_captured = recording != nullptr};
    link->waiting[*event] = std::exchange(link->results, {});
  });
}

/// The event has come, and with it those before.
void see(Link* link, Event* event) {
  event->is_over = true;
  for (const auto& result : std::exchange(link->waiting.at(event), {})) result();
}

Fault await(Link* link, Event* event) {
  return guarded([&] {
    if (!state.never_ends) see(link, event);
  });
}

Fault is_over(Link* link, Event* event, bool* yes) {
  return guarded([&] {
    if (event->is_captured) throw std::runtime_error("an event of a capture is not to be asked");
    *yes = event->is_over && !state.never_ends;
    if (*yes) see(link, event);
  });
}

Fault drop(Link* link, Event* event) {
  return guarded([&] {
    link->waiting.erase(event);
    delete event;
  });
}

Fault follow(Link* link) {
  return guarded([&] { require_idle(*link); });
}

/// Everything that follows is done later in any case.
Fault follow_event(Link* link, Event*) { return follow(link); }

Fault use_stream(int) { return nullptr; }

// Code that runs in a capture may destroy a link, which another thread then closes: no lock is held here.

Fault begin_capture(int, const Graph*, Graph** graph) {
  if (recording != nullptr) return "a capture inside a capture";
  recording = *graph = new Graph;
  ++state.graphs;
  if (state.on_capture) state.on_capture(true);
  return nullptr;
}

Fault end_capture(Graph* graph) {
  const bool is_refused = !state.capture_fault.empty();
  if (is_refused && state.on_failed_capture) state.on_failed_capture();
  if (state.on_capture) state.on_capture(false);
  recording = nullptr;
  graph->is_done = !is_refused && !state.undoes_captures;
  return is_refused ? state.capture_fault.c_str() : nullptr;
}

Fault launch(Graph* graph) {
  return guarded([&] {
    ++state.launches;
    if (!std::exchange(graph->was_launched, true)) ++state.captures;
    if (std::exchange(graph->is_done, false)) return;
    for (const auto& work : graph->work) work();
  });
}

/// A part that it consists of may hold the last reference to a link, which another thread then closes.
Fault destroy(Graph* graph) {
  delete graph;
  return guarded([] { --state.graphs; });
}

}  // namespace

void reset_stand_in() {
  const std::lock_guard hold(mutex);
  state = {};
  poll_fault.clear();
  aborts = 0;
}

StandIn& stand_in() { return state; }

std::vector<std::function<void()>>* stand_in_recording() { return recording == nullptr ? nullptr : &recording->work; }

void set_stand_in_fault(const std::string& fault) {
  const std::lock_guard hold(mutex);
  poll_fault = fault;
}

int stand_in_aborts() {
  const std::lock_guard hold(mutex);
  return aborts;
}

const mpi::gpu::ModuleApi& stand_in_api() {
  static mpi::gpu::ModuleApi api;
  api = {.version = mpi::gpu::kApiVersion,
         .device_count = 1,
         .nccl_compiled = 22809,
         .nccl_loaded = state.nccl_loaded,
         .use_device = use_device,
         .locate = locate,
         .make_unique_id = make_unique_id,
         .open = open,
         .poll = poll,
         .finalize = finalize,
         .abort = abort,
         .close = close,
         .allocate = allocate,
         .release = release,
         .all_reduce = all_reduce,
         .broadcast = broadcast,
         .all_gather = all_gather,
         .reduce_scatter = reduce_scatter,
         .mark = mark,
         .await = await,
         .is_over = is_over,
         .drop = drop,
         .follow = follow,
         .follow_event = follow_event,
         .use_stream = use_stream,
         .begin_capture = begin_capture,
         .end_capture = end_capture,
         .launch = launch,
         .destroy = destroy};
  return api;
}

std::shared_ptr<const mpi::Gpu> stand_in_gpu() { return std::make_shared<const mpi::Gpu>(stand_in_api(), 0); }

std::shared_ptr<std::byte> stand_in_memory(std::size_t bytes) {
  const std::lock_guard hold(mutex);
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64));
  std::memset(memory, 0, bytes);
  device_memory[memory] = bytes;
  return {memory, [](std::byte* address) {
            const std::lock_guard hold_again(mutex);
            device_memory.erase(address);
            std::free(address);
          }};
}

}  // namespace lockstep::testing
