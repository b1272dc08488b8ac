// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/gpu/nccl_link.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <future>
#include <sched.h>
#include <stdexcept>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "core/system/memory.hpp"

namespace lockstep::mpi {

namespace {

using namespace std::chrono_literals;

void throw_if_out_of_memory(const std::string& fault, std::size_t bytes) {
  const std::runtime_error failure(fault);
  if (is_out_of_memory(failure)) throw out_of_memory_error(failure);
  if (fault.find("out of memory") != std::string::npos) throw gpu_out_of_memory_error(bytes);
}

constexpr auto kPollTime = 200us;  // NCCL launches on a thread of its own in some tens of microseconds
constexpr auto kPollPause = 200us;
constexpr auto kLookInterval = 100ms;
constexpr double kFarewellSeconds = 30;

/// The sentence for a fault of a kernel; empty = the fault is one of the communication.
std::string gpu_error_of(std::string_view fault) {
  if (!fault.starts_with(gpu::kDeviceFault)) return "";
  return std::string(fault) +
         "; a kernel read or wrote beyond its data, or an assertion in it did not hold, such as a class number that is "
         "out of range. Run with CUDA_LAUNCH_BLOCKING=1 to learn which, or with run.device=cpu";
}

}  // namespace

NcclLink::NcclLink(const Communicator& comm, std::shared_ptr<const Gpu> gpu, const NcclOptions& options)
    : gpu_(std::move(gpu)),
      options_(options),
      diagnosis_(Communicator(comm.handle()), {.timeout_s = options.diagnosis_limit_s, .is_oversubscribed = true}) {
  connect(comm);
  watch_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

void NcclLink::connect(const Communicator& comm) {
  std::array<std::byte, gpu::kUniqueIdBytes> id{};
  comm.all_or_throw([&] {  // the root's failure is everybody's
    if (comm.is_root())
      check(api().make_unique_id(reinterpret_cast<char*>(id.data())), "the creation of the communicator id");
  });
  comm.broadcast(std::span<std::byte>(id));
  const std::string what = "connecting " + std::to_string(comm.size()) + " ranks";
  try {
    comm.all_or_throw([&] {  // or the others would wait for a rank that does not come
      check(api().open(gpu_->index(), reinterpret_cast<const char*>(id.data()), comm.size(), comm.rank(), &link_),
            what);
    });
    settle(what + " (NCCL_DEBUG=INFO prints details; NCCL_SOCKET_IFNAME selects the network)", options_.wait.timeout_s);
  } catch (const std::exception&) {
    if (link_ != nullptr) close();
    throw;
  }
}

NcclLink::~NcclLink() {
  watch_.request_stop();
  wakes_.notify_all();
  if (watch_.joinable()) watch_.join();
  if (!has_failed_ && std::uncaught_exceptions() == 0) {
    try {
      end_launch();
      check(api().finalize(link_), "ending");
      settle("ending", std::min(kFarewellSeconds, options_.wait.timeout_s));
    } catch (const std::exception& error) {
      std::fprintf(stderr, "lockstep: %s\n", error.what());
      has_failed_ = true;
    }
  } else {
    has_failed_ = true;
  }
  close();
}

void NcclLink::close() noexcept {
  if (has_failed_) within_limit("abort", api().abort);
  within_limit("close", api().close);
}

void NcclLink::within_limit(const char* what, gpu::Fault (*step)(gpu::Link*)) noexcept {
  auto done = std::make_shared<std::promise<void>>();
  const auto ended = done->get_future();
  std::thread([done, step, link = link_] {
    step(link);
    done->set_value();
  }).detach();
  if (ended.wait_for(std::chrono::duration<double>(options_.abort_limit_s)) == std::future_status::ready) return;
  std::fprintf(stderr, "lockstep: NCCL did not return from %s within %s; ending this process%s\n", what,
               seconds_text(options_.abort_limit_s).c_str(), failure_text().c_str());
  std::fflush(nullptr);
  _exit(static_cast<int>(ExitCode::communication));
}

void NcclLink::check(gpu::Fault fault, const std::string& what) const {
  if (fault == nullptr) return;
  throw_if_failed();  // that came first
  throw_failure({what + ": " + fault, gpu_error_of(fault)});
}

void NcclLink::throw_failure(const LinkFailure& failure) {
  if (failure.gpu_error.empty()) throw CommError("comm: nccl: " + failure.text);
  throw Error(ExitCode::internal, failure.gpu_error);
}

/// Why the link failed, behind a colon; empty = it did not.
std::string NcclLink::failure_text() const {
  const std::lock_guard hold(mutex_);
  return failure_.text.empty() ? "" : ": " + failure_.text;
}

void NcclLink::throw_if_failed() const {
  if (!has_failed_) return;
  const std::lock_guard hold(mutex_);
  throw_failure(failure_);
}

void NcclLink::settle(const std::string& what, double limit_s) {
  const auto begin = SteadyClock::now();
  for (bool is_under_way = true;;) {
    check(api().poll(link_, &is_under_way), what);
    if (!is_under_way) return;
    if (seconds_since(begin) >= limit_s) {
      fail({what + " did not finish within " + seconds_text(limit_s) + ": a peer is late or not reachable", ""});
      throw_if_failed();
    }
    if (SteadyClock::now() - begin < kPollTime) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kPollPause);
    }
  }
}

/// The work that was started last is on the stream for good, and its end is marked. Until then NCCL takes no other
/// call.
void NcclLink::end_launch() {
  std::deque<Started>& operations = order_ != nullptr ? captured_ : operations_;
  if (!operations.empty()) end_launch_of(operations.back());  // only this thread adds and removes
}

void NcclLink::end_launch_of(Started& last) {
  if (last.end != nullptr) return;
  settle(describe(last.call), options_.wait.timeout_s);
  gpu::Event* end = nullptr;
  check(api().mark(link_, &end), describe(last.call));
  const std::lock_guard hold(mutex_);
  last.end = end;
}

bool NcclLink::is_over(const Started& operation) const {
  if (operation.end == nullptr) return false;
  bool yes = false;
  check(api().is_over(link_, operation.end, &yes), describe(operation.call));
  return yes;
}

void NcclLink::forget_finished() {
  const std::lock_guard hold(mutex_);
  while (!operations_.empty() && is_over(operations_.front())) {
    check(api().drop(link_, operations_.front().end), "an event");
    operations_.pop_front();
  }
}

void NcclLink::start(const Call& call, const Operation& operation) {
  throw_if_failed();
  end_launch();
  if (order_ != nullptr) return record(call, operation);
  forget_finished();
  {
    const std::lock_guard hold(mutex_);
    operations_.push_back({.call = call, .since = SteadyClock::now(), .end = nullptr});
  }
  check(operation(link_), describe(call));
}

void NcclLink::record(const Call& call, const Operation& operation) {
  if (order_->last != nullptr) check(api().follow_event(link_, order_->last), describe(call));
  captured_.push_back({.call = call, .since = SteadyClock::now(), .end = nullptr});
  check(operation(link_), describe(call));
  end_launch();  // NCCL launches on a thread of its own: until it has, nobody else may add to the graph
  order_->last = captured_.back().end;
}

void NcclLink::await(std::uint64_t sequence) {
  throw_if_failed();
  end_launch();
  const std::deque<Started>& operations = order_ != nullptr ? captured_ : operations_;
  const auto found = std::find_if(operations.begin(), operations.end(),
                                  [sequence](const Started& started) { return started.call.sequence == sequence; });
  if (found == operations.end()) return;  // it is over
  check(api().await(link_, found->end), describe(found->call));
}

void NcclLink::begin_capture(CaptureOrder& order) {
  throw_if_failed();
  end_launch();  // the module waits for it, and for all that is on the device, before a stream is captured
  order_ = &order;
}

void NcclLink::end_capture() {
  if (order_ == nullptr) return;
  std::exception_ptr fault;
  try {
    end_launch();
    if (!captured_.empty()) check(api().await(link_, captured_.back().end), describe(captured_.back().call));
    for (const Started& operation : captured_) check(api().drop(link_, operation.end), "an event");
  } catch (const std::exception&) {
    fault = std::current_exception();
  }
  order_ = nullptr;
  captured_.clear();
  if (fault) std::rethrow_exception(fault);
}

void NcclLink::replay(const std::function<void()>& launch) {
  start({.kind = CallKind::replay}, [&](gpu::Link* link) {
    if (launch) launch();
    return api().follow(link);
  });
  end_launch();
}

BucketMemory NcclLink::allocate(const std::shared_ptr<NcclLink>& link, std::size_t bytes) {
  link->throw_if_failed();
  if (bytes == 0) return {};
  link->end_launch();
  void* memory = nullptr;
  void* registration = nullptr;
  const std::string what = "a bucket of " + std::to_string(bytes) + " bytes";
  const gpu::Fault fault = link->api().allocate(link->link_, bytes, &memory, &registration);
  if (fault != nullptr) throw_if_out_of_memory(fault, bytes);
  link->check(fault, what);
  link->settle(what, link->options_.wait.timeout_s);
  const auto size = static_cast<std::int64_t>(bytes);
  add_bucket_bytes_on_gpu(size);
  const auto release = [link, registration, size](void* address) {
    link->release(address, registration);
    add_bucket_bytes_on_gpu(-size);
  };
  return {.bytes = {static_cast<std::byte*>(memory), bytes}, .owner = std::shared_ptr<void>(memory, release)};
}

/// Errors here cannot be reported, but a failed link reports them itself.
void NcclLink::release(void* address, void* registration) noexcept {
  try {
    if (!has_failed_) end_launch();
  } catch (const std::exception&) {
  }
  api().release(link_, address, registration);
}

// ---- the watching thread

void NcclLink::watch(const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock<std::mutex> hold(mutex);
  while (!stop.stop_requested() && !has_failed_) {
    wakes_.wait_for(hold, stop, kLookInterval, [] { return false; });
    if (stop.stop_requested()) return;
    try {
      look();
    } catch (const CommError& error) {
      std::string reason = error.what();
      if (constexpr std::string_view kPrefix = "comm: nccl: "; reason.starts_with(kPrefix)) {
        reason.erase(0, kPrefix.size());
      }
      fail({reason, ""});
    } catch (const std::exception& error) {
      fail({error.what(), error.what()});
    }
  }
}

void NcclLink::look() {
  bool is_under_way = false;
  check(api().poll(link_, &is_under_way), "a peer or the network failed");
  Call late;
  double seconds = 0;
  {
    const std::lock_guard hold(mutex_);
    const auto oldest = std::find_if(operations_.begin(), operations_.end(),
                                     [this](const Started& started) { return !is_over(started); });
    if (oldest == operations_.end()) return;
    seconds = seconds_since(oldest->since);
    late = oldest->call;
  }
  if (seconds >= options_.wait.timeout_s) fail({why_late(late, seconds), ""});
}

/// The peers come to the same conclusion at about the same time, if they have come as far.
std::string NcclLink::why_late(const Call& call, double seconds) {
  try {
    diagnosis_.meet({.call = call});
    return describe(call) + " did not finish within " + seconds_text(seconds) +
           " on any rank, the limit of comm.timeout_s; NCCL_DEBUG=INFO prints details";
  } catch (const CommError& error) {
    std::string reason = error.what();
    reason.erase(0, std::string_view("comm: ").size());
    return describe(call) + " did not finish within " + seconds_text(seconds) + ": " + reason;
  }
}

void NcclLink::fail(const LinkFailure& failure) noexcept {
  {
    const std::lock_guard hold(mutex_);
    if (has_failed_) return;
    failure_ = failure;
    has_failed_ = true;
  }
  within_limit("abort", api().abort);
}

}  // namespace lockstep::mpi
