// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/queue.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <functional>
#include <initializer_list>
#include <signal.h>
#include <string>
#include <thread>
#include <utility>

#include "fake_gpu/runtime/report.hpp"
#include "fake_gpu/runtime/settings.hpp"

namespace lockstep::fake_gpu {

namespace {

using std::chrono::microseconds;

/// A GPU begins at some time even if nobody asks: otherwise the lazy schedule could hang where a peer waits for it.
constexpr std::chrono::seconds kPatience{1};
constexpr std::chrono::seconds kPatienceAtExit{1};

struct Workers {
  std::condition_variable progress;
  cudaError_t status = cudaSuccess;
  int queues = 0;
  int running = 0;
};

Workers& workers() {
  static Workers& only = *new Workers;
  return only;
}

bool is_lazy() { return settings().schedule == QueueSchedule::lazy; }
bool is_eager() { return settings().schedule == QueueSchedule::eager; }

bool are_over(const std::vector<QueuePoint>& points) { return std::all_of(points.begin(), points.end(), is_over); }

cudaError_t result_of(const QueuedOperation& operation) {
  std::string reason = "an unknown exception";
  try {
    operation.work();
    return cudaSuccess;
  } catch (const std::exception& error) {
    reason = error.what();
  } catch (...) {
  }
  report("'" + std::string(operation.name) + "' failed: " + reason.substr(0, 500));
  return cudaErrorAssert;
}

microseconds delay(Queue& queue) {
  if (settings().max_delay_us <= 0 || settings().schedule != QueueSchedule::threads) return microseconds(0);
  return microseconds(std::uniform_int_distribution<int>(0, settings().max_delay_us)(queue.random));
}

/// Everything that the work holds is released without the lock, because that may call the runtime.
void run(Queue& queue, QueuedOperation operation, Lock& lock) {
  queue.is_running = true;
  ++workers().running;
  const bool is_healthy = workers().status == cudaSuccess;
  const microseconds pause = delay(queue);
  lock.unlock();
  if (pause.count() > 0) std::this_thread::sleep_for(pause);
  const cudaError_t result = is_healthy ? result_of(operation) : cudaSuccess;
  operation.work = nullptr;
  lock.lock();
  if (workers().status == cudaSuccess) workers().status = result;
  --workers().running;
  queue.is_running = false;
}

void run_next(Queue& queue, Lock& lock) {
  QueuedOperation operation = std::move(queue.operations.front());
  queue.operations.pop_front();
  const auto is_over_at = operation.is_over_at;
  if (operation.work) run(queue, std::move(operation), lock);
  ++queue.done;
  if (is_over_at) *is_over_at = std::chrono::steady_clock::now();
  workers().progress.notify_all();
}

/// Runs what is before a point in the calling thread.
void run_until(const QueuePoint& point, Lock& lock) {
  Queue& queue = *point.queue;
  while (!is_over(point)) {
    if (queue.is_running) {  // it runs in another thread
      workers().progress.wait(lock);
      continue;
    }
    const std::vector<QueuePoint>& after = queue.operations.front().after;
    const auto open = std::find_if_not(after.begin(), after.end(), is_over);
    if (open == after.end()) {
      run_next(queue, lock);
    } else {
      run_until(QueuePoint(*open), lock);
    }
  }
}

/// @return  false if nothing will be queued any more
bool await_turn(Queue& queue, Lock& lock) {
  queue.changed.wait(lock, [&queue] { return queue.is_closed || !queue.operations.empty(); });
  if (queue.operations.empty()) return false;
  const auto is_wanted = [&queue] { return queue.wanted > queue.done; };
  if (is_lazy() && !queue.changed.wait_for(lock, kPatience, is_wanted)) want(end_of(queue));
  workers().progress.wait(lock, [&queue] { return are_over(queue.operations.front().after); });
  return true;
}

void work_off(Queue& queue) {
  Lock lock = hold();
  while (await_turn(queue, lock)) run_next(queue, lock);
}

/// Exit handlers that come later destroy what operations use.
void end_at_exit() {
  Lock lock = hold();
  workers().status = cudaErrorCudartUnloading;
  workers().progress.wait_for(lock, kPatienceAtExit, [] { return workers().running == 0; });
}

/// Signals to the process are for the threads of the program.
void start_worker(Queue& queue) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(work_off, std::ref(queue)).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void prepare(Queue& queue) {
  if (queue.queued > 0) return;
  if (++workers().queues == 1) std::atexit(end_at_exit);
  queue.random.seed(static_cast<unsigned>(settings().seed) * 1009 + static_cast<unsigned>(workers().queues));
  if (!is_eager()) start_worker(queue);
}

}  // namespace

QueuePoint end_of(Queue& queue) { return {.queue = &queue, .index = queue.queued}; }

bool is_over(const QueuePoint& point) { return point.queue->done >= point.index; }

void push(Queue& queue, QueuedOperation operation, Lock& lock) {
  prepare(queue);
  queue.operations.push_back(std::move(operation));
  ++queue.queued;
  if (is_eager()) {
    run_until(end_of(queue), lock);
  } else {
    queue.changed.notify_one();
  }
}

void want(const QueuePoint& point) {
  Queue& queue = *point.queue;
  if (!is_lazy() || queue.wanted >= point.index) return;
  const std::uint64_t begun = queue.queued - queue.operations.size();
  const std::uint64_t first = std::max(begun, queue.wanted);
  queue.wanted = point.index;
  for (std::uint64_t index = first; index < point.index; ++index) {
    for (const QueuePoint& earlier : queue.operations[index - begun].after) want(earlier);
  }
  queue.changed.notify_one();
}

void await(const std::vector<QueuePoint>& points, Lock& lock) {
  for (const QueuePoint& point : points) is_eager() ? run_until(point, lock) : want(point);
  workers().progress.wait(lock, [&points] { return are_over(points); });
}

void close(Queue& queue) {
  want(end_of(queue));
  queue.is_closed = true;
  queue.changed.notify_one();
}

cudaError_t device_status() { return workers().status; }

}  // namespace lockstep::fake_gpu
