// SPDX-License-Identifier: BSD-3-Clause
// Device memory travels by NCCL, on a stream of its own; host memory by a backend for the CPU.
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/system/process.hpp"
#include "mpi/gpu/nccl_link.hpp"
#include "mpi/gpu/nccl_version.hpp"
#include "mpi/shared/device_collectives.hpp"
#include "mpi/shared/messages.hpp"
#include "mpi/shared/ordered_collectives.hpp"

namespace lockstep::mpi {

namespace {

/// Calls on device memory that are compared over all ranks before NCCL gets them: it hangs, or mixes things up, where
/// they differ. Ranks that differ mostly do so in their first steps.
constexpr std::uint64_t kComparedCalls = 200;

std::string version_text(int code) {
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." + std::to_string(code % 100);
}

/// The facts that ranks must know of each other before NCCL may connect them.
struct Endpoint {
  std::string uuid;
  std::string bus_id;
  std::string host;  ///< NCCL_HOSTID, else its name: NCCL takes ranks that differ there to be on different hosts

  static Endpoint here(const Gpu& gpu) {
    const char* const host_id = std::getenv("NCCL_HOSTID");
    return {gpu.uuid(), gpu.bus_id(), host_id != nullptr ? host_id : host_name()};
  }
};

/// NCCL refuses two ranks on one bus id, as parts of one GPU have it, too.
bool is_same_gpu(const Endpoint& one, const Endpoint& other) {
  return one.host == other.host && (one.uuid == other.uuid || one.bus_id == other.bus_id);
}

std::string same_gpu_text(const Endpoint& one, const Endpoint& other) {
  if (one.uuid == other.uuid) return "have the same GPU (" + one.uuid + ")";
  return "have parts (MIG) of the same GPU (" + one.bus_id + ")";
}

/// @throws ConfigError  the ranks' NCCL or GPUs do not go together; on every rank
void require_compatible(const Communicator& comm, const Gpu& gpu) {
  comm.all_or_throw([&gpu] {
    const gpu::ModuleApi& api = gpu.api();
    if (api.nccl_compiled == api.nccl_loaded) return;
    throw ConfigError("comm: lockstep_gpu.so was built for NCCL " + version_text(api.nccl_compiled) + ", but " +
                      nccl_version(gpu) + " is loaded; LD_LIBRARY_PATH must not name another libnccl");
  });
  const Endpoint mine = Endpoint::here(gpu);
  const std::vector<std::string> versions = comm.all_gather(nccl_version(gpu));
  const std::vector<std::string> uuids = comm.all_gather(mine.uuid);
  const std::vector<std::string> bus_ids = comm.all_gather(mine.bus_id);
  const std::vector<std::string> hosts = comm.all_gather(mine.host);
  std::vector<Endpoint> ends;
  for (std::size_t rank = 0; rank < uuids.size(); ++rank) {
    if (versions[rank] != versions[0]) {
      throw_agreed(ExitCode::configuration, "comm: rank 0 has NCCL " + versions[0] + ", rank " + std::to_string(rank) +
                                                " has " + versions[rank] + "; all ranks must load the same version");
    }
    const Endpoint end{uuids[rank], bus_ids[rank], hosts[rank]};
    const auto owner =
        std::find_if(ends.begin(), ends.end(), [&end](const Endpoint& other) { return is_same_gpu(end, other); });
    if (owner != ends.end()) {
      throw_agreed(ExitCode::configuration, "comm: ranks " + std::to_string(owner - ends.begin()) + " and " +
                                                std::to_string(rank) + " " + same_gpu_text(*owner, end) +
                                                ", which NCCL does not support; start one rank per GPU or, for tests, "
                                                "give each rank a different NCCL_HOSTID");
    }
    ends.push_back(end);
  }
}

class NcclCollectives final : public OrderedCollectives, public DeviceCollectives {
 public:
  NcclCollectives(Communicator comm, std::shared_ptr<const Gpu> gpu, std::unique_ptr<Collectives> host,
                  const NcclOptions& options)
      : OrderedCollectives(RankFacts{.name = "nccl", .rank = comm.rank(), .world_size = comm.size()}),
        comm_(std::move(comm)),
        gpu_(std::move(gpu)),
        host_(std::move(host)),
        options_(options),
        messages_(Communicator(comm_.handle()), options.wait),
        slots_(kMaxJobs) {}

  bool has_failed() const noexcept override { return link_ && link_->has_failed(); }

  /// A graph may have operations of this object and of all parts that were split from it.
  void begin_capture() override {
    link();  // not in the recording: to connect, ranks wait for each other
    order_ = {};
    for (NcclCollectives* const member : members()) {
      member->begin_recorded_calls();
      if (member->link_) member->link_->begin_capture(order_);
    }
  }
  void end_capture() override {
    std::exception_ptr fault;
    for (NcclCollectives* const member : members()) {
      member->end_recorded_calls();
      try {
        if (member->link_) member->link_->end_capture();
      } catch (const std::exception&) {
        if (!fault) fault = std::current_exception();
      }
    }
    if (fault) std::rethrow_exception(fault);
  }
  bool is_capturing() const noexcept override { return is_recording_calls(); }
  /// Every link watches the graph: where a peer has failed, each must end its own operations.
  void replay(const std::function<void()>& launch) override {
    link_ ? link_->replay(launch) : launch();
    for (const NcclCollectives* const member : members()) {
      if (member != this && member->link_) member->link_->replay({});
    }
  }

 protected:
  BucketMemory allocate(std::size_t bytes) override {
    const std::shared_ptr<NcclLink>& connected = link();
    BucketMemory memory;
    comm_.all_or_throw(
        [&] { memory = NcclLink::allocate(connected, bytes); });  // one GPU may be fuller than the others
    return memory;
  }

  std::unique_ptr<Collectives> make_part(int color) override {
    Communicator part = comm_.split(color, rank());
    require_compatible(part, *gpu_);
    return std::make_unique<NcclCollectives>(std::move(part), gpu_, host_->split(color), options_);
  }

  void announce(const Job& job) override {
    JobSlot& slot = slot_of(job);
    slot.is_on_device = job.values != nullptr && job.call.count > 0 && is_on_device(job.values);
    if (slot.is_on_device && job.tree != nullptr) {
      throw std::logic_error("comm: nccl does not support lanes");
    }
    if (link_) link_->throw_if_failed();
    compare(job, slot);
    if (slot.is_on_device) {
      queue(job);
    } else {
      slot.ticket = host_->start(job);
    }
  }

  void perform(const Job& job) override {
    const JobSlot& slot = slot_of(job);
    if (slot.is_on_device) return link_->await(job.call.sequence);
    if (job.call.kind != CallKind::reduce_ranges) host_->wait(slot.ticket);  // those are taken later
  }

  /// Device memory is handed over as one piece.
  void take(const Job& job, Slice range, const RangeConsumer& consume) override {
    const JobSlot& slot = slot_of(job);
    if (!slot.is_on_device) return host_->reduce_range(slot.ticket, range, consume);
    if (range.count > 0) consume(range.begin, job.values + range.begin * job.element_bytes(), range.count);
  }

 private:
  /// The place where a call's memory lies, and what it is for the backend that has it.
  struct JobSlot {
    bool is_on_device = false;
    Ticket ticket;
  };

  /// This object and all that were split from it, in the order in which they were made.
  std::vector<NcclCollectives*> members() const {
    std::vector<NcclCollectives*> members;
    for (OrderedCollectives* const member : family()) members.push_back(static_cast<NcclCollectives*>(member));
    return members;
  }

  JobSlot& slot_of(const Job& job) { return slots_[job.call.sequence % kMaxJobs]; }

  bool is_on_device(const void* memory) const { return gpu_->place_of(memory).device >= 0; }

  /// The ranks are connected when they first need to be.
  const std::shared_ptr<NcclLink>& link() {
    if (!link_) link_ = std::make_shared<NcclLink>(comm_, gpu_, options_);
    return link_;
  }

  /// All ranks compare a call on host memory anyway when they do it.
  void compare(const Job& job, const JobSlot& slot) {
    // A rank that runs out of memory while it records would leave the others waiting here.
    if (is_capturing() || compared_ == kComparedCalls) return;
    ++compared_;
    Job seen = job;
    seen.call.is_on_device = slot.is_on_device;
    messages_.meet(seen);
  }

  void queue(const Job& job) {
    const gpu::ModuleApi& api = gpu_->api();
    const Call& call = job.call;
    if (is_capturing() && !link_) {
      throw std::runtime_error("ranks would have to be connected for their first " + describe(call));
    }
    link()->start(call, [&](gpu::Link* link) -> gpu::Fault {
      switch (call.kind) {
        case CallKind::all_reduce:
        case CallKind::reduce_ranges:
          return api.all_reduce(link, job.values, call.count, call.dtype, call.op);
        case CallKind::broadcast:
          return api.broadcast(link, job.values, call.count, call.root);
        case CallKind::all_gather:
          return api.all_gather(link, job.values, job.result, call.count);
        case CallKind::reduce_scatter:
          return reduce_scatter_on(link, job);
        case CallKind::barrier:
        case CallKind::allocate_bucket:
        case CallKind::split:
        case CallKind::replay:
          return nullptr;  // have no memory
      }
      return nullptr;
    });
  }

  gpu::Fault reduce_scatter_on(gpu::Link* link, const Job& job) {
    std::vector<const void*> slices;
    std::vector<std::size_t> counts;
    for (int owner = 0; owner < world_size(); ++owner) {
      const Slice slice = slice_of(job.call.count, owner, world_size(), job.element_bytes());
      slices.push_back(job.values + slice.begin * job.element_bytes());
      counts.push_back(slice.count);
    }
    return gpu_->api().reduce_scatter(link, slices.data(), counts.data(), job.result, job.call.dtype, job.call.op);
  }

  Communicator comm_;
  std::shared_ptr<const Gpu> gpu_;
  std::unique_ptr<Collectives> host_;
  NcclOptions options_;
  Messages messages_;
  std::shared_ptr<NcclLink> link_;  // null until it is needed
  std::vector<JobSlot> slots_;      // jobs, indexed by sequence number
  CaptureOrder order_;              // order of the operations in a capture that this object began
  std::uint64_t compared_ = 0;
};

}  // namespace

std::string nccl_version(const Gpu& gpu) { return version_text(gpu.api().nccl_loaded); }

std::unique_ptr<Collectives> make_nccl_collectives(Communicator comm, std::shared_ptr<const Gpu> gpu,
                                                   std::unique_ptr<Collectives> host, const NcclOptions& options) {
  require_compatible(comm, *gpu);
  return std::make_unique<NcclCollectives>(std::move(comm), std::move(gpu), std::move(host), options);
}

}  // namespace lockstep::mpi
