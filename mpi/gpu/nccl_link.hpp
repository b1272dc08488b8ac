// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/text/duration.hpp"
#include "mpi/gpu/gpu.hpp"
#include "mpi/gpu/module_api.hpp"
#include "mpi/shared/job.hpp"
#include "mpi/shared/messages.hpp"

namespace lockstep::mpi {

/// The operation that was recorded last in the capture at hand, on whichever link.
struct CaptureOrder {
  gpu::Event* last = nullptr;  ///< null = none was
};

struct NcclOptions {
  WaitOptions wait = {};
  double diagnosis_limit_s = 10;  ///< time for the peers to report their positions, once an operation is late
  double abort_limit_s = 30;      ///< an abort that takes longer ends the process
};

/// One rank's end of an NCCL communicator: operations, the memory it knows, deadlines, and a thread that watches.
///
/// An operation queues up on the GPU and is over at some time that nobody on the host waits for. The watch gives up
/// when NCCL reports an error, or when an operation is not over in time; then it aborts the communicator, which ends
/// kernels that wait for a peer, and every call throws.
/// @throws CommError  from every member: NCCL, CUDA or a peer failed
/// @throws Error      from every member: a kernel failed on this GPU (ExitCode::internal)
class NcclLink {
 public:
  using Operation = std::function<gpu::Fault(gpu::Link* link)>;

  /// Collective over `comm`.
  /// @throws CommError  the ranks cannot be connected in time
  NcclLink(const Communicator& comm, std::shared_ptr<const Gpu> gpu, const NcclOptions& options);
  /// Ends in good order together with the peers, or alone while an exception is under way or after a failure.
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  /// @param call  its sequence number is higher than those before
  void start(const Call& call, const Operation& operation);
  /// Has the current stream wait for the operation that `start` was given with this sequence number.
  void await(std::uint64_t sequence);

  /// Until end_capture, operations are recorded in a graph of the current stream. The watch does not know of them.
  /// NCCL's communicators must not wait for each other: where a graph has operations of several links, each operation
  /// follows the one before, so that every rank runs them in one order.
  /// @param order  the order of the links that record together; outlives the capture
  void begin_capture(CaptureOrder& order);
  /// Called before the capture of the stream ends. The current stream is behind all operations.
  void end_capture();
  /// Runs `launch`, which queues a graph with operations of this link on the current stream, and watches it. With an
  /// empty `launch`, watches a graph that was queued already.
  void replay(const std::function<void()>& launch);

  /// Zeroed device memory, which keeps `link` alive.
  static BucketMemory allocate(const std::shared_ptr<NcclLink>& link, std::size_t bytes);
  void throw_if_failed() const;
  bool has_failed() const noexcept { return has_failed_; }  ///< callable from any thread

 private:
  struct Started {
    Call call;
    SteadyClock::time_point since;
    gpu::Event* end = nullptr;  ///< null while NCCL is still launching it
  };

  struct LinkFailure {
    std::string text;
    std::string gpu_error;  ///< the whole sentence where a kernel failed, not the communication
  };

  const gpu::ModuleApi& api() const noexcept { return gpu_->api(); }
  void connect(const Communicator& comm);
  /// Waits, in the calling thread, until NCCL has done what the last call began.
  void settle(const std::string& what, double limit_s);
  void record(const Call& call, const Operation& operation);
  void end_launch();
  void end_launch_of(Started& last);
  void forget_finished();
  bool is_over(const Started& operation) const;
  void check(gpu::Fault fault, const std::string& what) const;
  void watch(const std::stop_token& stop);
  void look();
  std::string why_late(const Call& call, double seconds);
  void fail(const LinkFailure& failure) noexcept;
  [[noreturn]] static void throw_failure(const LinkFailure& failure);
  std::string failure_text() const;
  void release(void* address, void* registration) noexcept;
  void close() noexcept;
  /// Runs what may hang; ends the process when it does.
  void within_limit(const char* what, gpu::Fault (*step)(gpu::Link*)) noexcept;

  std::shared_ptr<const Gpu> gpu_;
  NcclOptions options_;
  gpu::Link* link_ = nullptr;
  Messages diagnosis_;
  mutable std::recursive_mutex mutex_;  ///< guards operations_ and failure_
  std::deque<Started> operations_;
  CaptureOrder* order_ = nullptr;  // null = no capture is under way
  std::deque<Started> captured_;   // operations of the current capture
  LinkFailure failure_;
  std::atomic<bool> has_failed_{false};
  std::condition_variable_any wakes_;
  std::jthread watch_;
};

/// Collective.
/// @param host  for host memory, of the same ranks
/// @throws ConfigError  two ranks have one GPU, or NCCL versions differ; on every rank
std::unique_ptr<Collectives> make_nccl_collectives(Communicator comm, std::shared_ptr<const Gpu> gpu,
                                                   std::unique_ptr<Collectives> host, const NcclOptions& options);

}  // namespace lockstep::mpi
