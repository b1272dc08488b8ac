// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/data/loader.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "batch/collate.hpp"
#include "core/message.hpp"

namespace lockstep::data {

class Loader::Impl {
 public:
  Impl(std::shared_ptr<const Dataset> dataset, Plan plan, std::int64_t first, std::int64_t end, LoaderOptions options)
      : dataset_(std::move(dataset)),
        plan_(std::move(plan)),
        name_(std::move(options.name)),
        pins_memory_(options.pins_memory),
        claimed_(first),
        taken_(first),
        end_(end) {
    if (options.workers < 0 || options.prefetch < 1) {
      throw std::invalid_argument("Loader: workers must be at least 0 and prefetch at least 1");
    }
    slots_.resize(static_cast<std::size_t>(options.prefetch));
    for (int i = 0; i < options.workers; ++i) {
      workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
    }
  }

  ~Impl() {
    for (std::jthread& worker : workers_) worker.request_stop();  // all at once; their destructors join
  }

  batch::Batch next() {
    if (taken_ >= end_) throw std::logic_error("Loader: batch " + std::to_string(taken_) + " is beyond the end");
    const auto start = std::chrono::steady_clock::now();
    Slot slot = workers_.empty() ? fetch(taken_++) : take();
    wait_ += std::chrono::steady_clock::now() - start;
    if (slot.error) std::rethrow_exception(slot.error);
    return std::move(slot.batch);
  }

  double wait_seconds() const noexcept { return wait_.count(); }

 private:
  struct Slot {
    batch::Batch batch;
    std::exception_ptr error;
    bool is_ready = false;
  };

  // At most `prefetch` batches are claimed and not taken, so no two of them share a slot.
  Slot& slot_of(std::int64_t k) { return slots_[static_cast<std::size_t>(k) % slots_.size()]; }
  bool may_claim() const { return claimed_ < std::min(end_, taken_ + static_cast<std::int64_t>(slots_.size())); }

  Slot fetch(std::int64_t k) const {
    Slot slot;
    slot.is_ready = true;
    try {
      slot.batch = get(plan_(k), k);
      if (pins_memory_) slot.batch = batch::pinned(std::move(slot.batch));
    } catch (...) {
      slot.error = std::current_exception();
    }
    return slot;
  }

  batch::Batch get(std::vector<batch::Draw> draws, std::int64_t k) const {
    batch::Batch batch;
    const std::string fault = fault_of([&] { batch = fetched(draws); });
    if (fault.empty()) {
      batch.set_draws(std::move(draws));
      return batch;
    }
    for (const batch::Draw& draw : draws) {  // one by one: which of them is it?
      const std::string its_fault = fault_of([&] { fetched(std::span(&draw, 1)); });
      if (!its_fault.empty()) {
        throw DataError("sample " + std::to_string(draw.index) + " of " + name_ + ": " + its_fault);
      }
    }
    throw DataError(name_ + ", batch " + std::to_string(k) + ": " + fault);
  }

  /// The samples, all of them.
  batch::Batch fetched(std::span<const batch::Draw> draws) const {
    batch::Batch batch = dataset_->get(draws);
    if (batch.size() == static_cast<std::int64_t>(draws.size())) return batch;
    throw DataError("the data set gave " + std::to_string(batch.size()) + " samples instead of " +
                    std::to_string(draws.size()));
  }

  /// What is wrong with data that `call` gets; empty if nothing is. All other errors continue.
  template <class Call>
  static std::string fault_of(const Call& call) {
    try {
      call();
      return "";
    } catch (const DataError& error) {
      return error.what();
    } catch (const Error&) {
      throw;
    } catch (const std::logic_error&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      return message_of(error);
    }
  }

  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (room_.wait(lock, stop, [this] { return may_claim(); }) && !stop.stop_requested()) {
      const std::int64_t k = claimed_++;
      lock.unlock();
      Slot fetched = fetch(k);
      lock.lock();
      slot_of(k) = std::move(fetched);
      ready_.notify_one();
    }
  }

  Slot take() {
    Slot slot;
    {
      std::unique_lock lock(mutex_);
      Slot& wanted = slot_of(taken_);
      ready_.wait(lock, [&wanted] { return wanted.is_ready; });
      slot = std::exchange(wanted, Slot{});
      ++taken_;
    }
    room_.notify_one();
    return slot;
  }

  std::shared_ptr<const Dataset> dataset_;
  Plan plan_;
  std::string name_;
  bool pins_memory_;
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable_any room_;
  std::condition_variable ready_;
  std::int64_t claimed_;  // the next batch that a worker will fetch
  std::int64_t taken_;    // the next batch that the caller will get
  std::int64_t end_;
  std::chrono::duration<double> wait_{0};
  std::vector<std::jthread> workers_;  // last: joined before anything they use is gone
};

Loader::Loader(std::shared_ptr<const Dataset> dataset, Plan plan, std::int64_t first, std::int64_t end,
               LoaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(dataset), std::move(plan), first, end, std::move(options))) {}

Loader::~Loader() = default;

batch::Batch Loader::next() { return impl_->next(); }

double Loader::wait_seconds() const noexcept { return impl_->wait_seconds(); }

}  // namespace lockstep::data
