// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/nccl/communicator.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "fake_gpu/fake_gpu.hpp"
#include "fake_gpu/nccl/errors.hpp"
#include "fake_gpu/nccl/settings.hpp"

namespace lockstep::fake_gpu::nccl {

namespace {

using namespace std::chrono_literals;

constexpr auto kPause = 200us;

std::mutex handles_mutex;
std::map<ncclComm_t, std::shared_ptr<FakeCommunicator>> handles;

std::vector<cudaStream_t> streams_of(const std::vector<NcclOperation>& group) {
  std::vector<cudaStream_t> streams;
  for (const NcclOperation& operation : group) {
    if (std::find(streams.begin(), streams.end(), operation.stream) == streams.end()) {
      streams.push_back(operation.stream);
    }
  }
  return streams;
}

std::vector<CommCapture> capture_states(const std::vector<NcclOperation>& group) {
  std::vector<CommCapture> states;
  for (const NcclOperation& operation : group) states.push_back(capture_state(operation.stream));
  const auto is_elsewhere = [&states](const CommCapture& state) { return state.id != states.front().id; };
  if (std::any_of(states.begin(), states.end(), is_elsewhere)) {
    throw Refusal(ncclInvalidUsage,
                  "The streams of one group must all be captured by the same graph, or not be captured.");
  }
  return states;
}

/// The device of a communicator is that of the calling thread for a while.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    check(cudaGetDevice(&before_), "cudaGetDevice");
    check(cudaSetDevice(device), "cudaSetDevice");
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard() { cudaSetDevice(before_); }

 private:
  int before_ = 0;
};

}  // namespace

ncclComm_t handle_of(std::shared_ptr<FakeCommunicator> communicator) {
  auto* const handle = reinterpret_cast<ncclComm_t>(communicator.get());
  const std::lock_guard<std::mutex> hold(handles_mutex);
  handles[handle] = std::move(communicator);
  return handle;
}

std::shared_ptr<FakeCommunicator> find(ncclComm_t handle) {
  const std::lock_guard<std::mutex> hold(handles_mutex);
  const auto found = handles.find(handle);
  if (found == handles.end()) {
    throw Refusal(ncclInvalidArgument, "The communicator does not exist: it is null, or was destroyed or aborted.");
  }
  return found->second;
}

void forget(ncclComm_t handle) {
  const std::lock_guard<std::mutex> hold(handles_mutex);
  handles.erase(handle);
}

FakeCommunicator::FakeCommunicator(std::shared_ptr<Member> member, const CommOptions& options)
    : member_(std::move(member)), options_(options) {}

void FakeCommunicator::require_ready() {
  require_settled();
  const std::lock_guard<std::mutex> hold(mutex_);
  if (is_finalized_) throw Refusal(ncclInvalidUsage, "The communicator is finalized, and can only be destroyed.");
}

void FakeCommunicator::require_settled() {
  const std::lock_guard<std::mutex> hold(mutex_);
  if (under_way_ != nullptr) {
    throw Refusal(ncclInvalidUsage,
                  "The communicator is in progress: no other call is allowed before ncclCommGetAsyncError has returned "
                  "ncclSuccess.");
  }
  const ncclResult_t error = member_->error() != ncclSuccess ? member_->error() : state_;
  if (error != ncclSuccess) throw Refusal(error, "The communicator failed before, and can only be aborted.");
}

ncclResult_t FakeCommunicator::begin(ProgressTest progress) {
  if (options_.is_blocking) {
    while (!progress()) {
      if (member_->is_aborted()) throw Refusal(ncclInternalError, "The communicator was aborted by another thread.");
      std::this_thread::sleep_for(kPause);
    }
    return ncclSuccess;
  }
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    under_way_ = std::make_shared<const ProgressTest>(std::move(progress));
    polls_left_ = polls_in_progress();
    if (polls_left_ > 0) return ncclInProgress;
  }
  return state();
}

ncclResult_t FakeCommunicator::state() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (member_->error() != ncclSuccess) return member_->error();
  if (under_way_ == nullptr) return state_;
  if (polls_left_ > 0) {
    --polls_left_;
    return ncclInProgress;
  }
  if (is_advancing_) return ncclInProgress;  // another thread is advancing it
  is_advancing_ = true;
  const std::shared_ptr<const ProgressTest> progress = under_way_;
  lock.unlock();
  bool is_complete = false;
  const ncclResult_t result = guarded([&] {
    is_complete = (*progress)();
    return ncclSuccess;
  });
  lock.lock();
  is_advancing_ = false;
  if (result == ncclSuccess && !is_complete) return ncclInProgress;
  under_way_ = nullptr;
  state_ = result;
  return state_;
}

ncclResult_t FakeCommunicator::launch(const std::vector<NcclOperation>& group) {
  const DeviceGuard device(options_.device);
  require_separate_buffers(group, member_->position());
  return begin([this, group, called = capture_states(group)] { return queue(group, called); });
}

bool FakeCommunicator::queue(const std::vector<NcclOperation>& group, const std::vector<CommCapture>& called) {
  const DeviceGuard device(options_.device);
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < group.size(); ++i) {
    require_unchanged(called[i], group[i]);
    for (const Range& range : ranges_of(group[i], member_->position())) ranges.push_back(range);
  }
  const unsigned long long capture = called.front().id;
  const std::vector<cudaStream_t> streams = streams_of(group);
  order_.begin(streams, capture);
  const auto held = capture != 0 ? Member::hold_for_graph(member_) : nullptr;
  const char* const name = group.size() == 1 ? name_of(group.front().call.kind) : "a group of NCCL's collectives";
  check(enqueue_collective(streams.front(), name, std::move(ranges),
                           [member = member_, held, group] { member->run(group); }),
        name);
  order_.end(streams, capture);
  return true;
}

bool FakeCommunicator::is_quiet() { return order_.is_complete() && member_->is_idle(); }

ncclResult_t FakeCommunicator::finalize() {
  require_ready();
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    is_finalized_ = true;
  }
  return begin([this] { return is_quiet(); });
}

/// Who destroys in a destructor does not look at a refusal, after which NCCL's threads and memory stay.
void FakeCommunicator::require_end_of_finalize() {
  const std::lock_guard<std::mutex> hold(mutex_);
  if (!is_finalized_ || under_way_ == nullptr) return;
  break_rule(
      "ncclCommDestroy was called while ncclCommFinalize is in progress: wait until ncclCommGetAsyncError returns "
      "ncclSuccess.",
      CallSite::here());
}

void FakeCommunicator::destroy() {
  require_end_of_finalize();
  require_settled();
  while (!is_quiet()) std::this_thread::sleep_for(kPause);
}

void FakeCommunicator::abort() {
  member_->abort();
  for (;;) {
    {
      const std::lock_guard<std::mutex> hold(mutex_);
      under_way_ = nullptr;
      if (!is_advancing_ && member_->is_idle()) return;
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace lockstep::fake_gpu::nccl
