// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/data/dataset.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "batch/collate.hpp"
#include "batch/nvtx_range.hpp"
#include "core/system/status_line.hpp"
#include "core/text/text.hpp"
#include "data/sample_batch.hpp"
#include "data/source/roles.hpp"

namespace lockstep::data {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::size_t kMaxPiecesAtOnce = 8;
constexpr std::size_t kMaxSamplesInWarning = 3;

/// The fault in data that `call` gets; empty if nothing is. All other errors continue.
template <class Call>
std::string fault_of(const Call& call) {
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

/// A batch on its way: opened, then loaded in pieces, then finished.
struct Slot {
  std::int64_t k = -1;
  std::vector<batch::Draw> draws = {};
  std::optional<SampleBatch> samples = {};  ///< none = the whole batch is one piece
  std::size_t pieces = 0;
  std::size_t claimed = 0;  ///< pieces that a thread loads or has loaded
  std::size_t loaded = 0;
  batch::Batch batch = {};
  std::exception_ptr error = nullptr;
  std::size_t bad_piece = 0;  ///< first piece that failed
  bool is_ready = false;
};

/// A thread of the loader.
class Worker {
 public:
  /// Notes the first sample of the piece that it loads; null = none.
  void note(const batch::Draw* draw) {
    const std::lock_guard lock(mutex_);
    draw_.reset();
    if (draw != nullptr) draw_ = *draw;
  }
  std::optional<batch::Draw> draw() const {
    const std::lock_guard lock(mutex_);
    return draw_;
  }

  std::jthread thread;

 private:
  mutable std::mutex mutex_;
  std::optional<batch::Draw> draw_;
};

}  // namespace

class Loader::Impl {
 public:
  Impl(std::shared_ptr<const Dataset> dataset, Plan plan, std::int64_t first, std::int64_t end, LoaderOptions options)
      : dataset_(std::move(dataset)),
        samples_(ability_of<SampleDataset>(*dataset_)),
        files_(ability_of<SampleFiles>(*dataset_)),
        plan_(std::move(plan)),
        options_(std::move(options)),
        opened_(first),
        taken_(first),
        planned_(first),
        end_(end) {
    if (options_.workers < 0 || options_.prefetch < 1) {
      throw std::invalid_argument("Loader: workers must be at least 0 and prefetch at least 1");
    }
    const batch::Roles roles = dataset_->roles();
    if (roles != batch::Roles()) roles_ = std::make_shared<const batch::Roles>(roles);
    slots_.resize(static_cast<std::size_t>(options_.workers > 0 ? options_.prefetch : 1));
    if (samples_ != nullptr) {
      SampleLayout layout = samples_->layout();
      const bool has_bytes = options_.prefers_bytes && !layout.byte_fields.empty();
      layout_ = std::move(has_bytes ? layout.byte_fields : layout.fields);
    }
    buffers_.emplace(slots_.size() + 1, BufferOptions{.pins_memory = options_.pins_memory,
                                                      .prefers_channels_last = options_.prefers_channels_last});
    for (int i = 0; i < options_.workers; ++i) workers_.push_back(std::make_unique<Worker>());
    for (const auto& worker : workers_) {
      worker->thread = std::jthread([this, &self = *worker](const std::stop_token& stop) { work(stop, self); });
    }
    report_.emplace([this] { return lines_of_workers(); });
  }

  ~Impl() {
    for (const auto& worker : workers_) worker->thread.request_stop();  // all at once; their destructors join
  }

  batch::Batch next() {
    if (taken_ >= end_) throw std::logic_error("Loader: batch " + std::to_string(taken_) + " is beyond the end");
    const batch::NvtxRange range("load");
    const auto start = Clock::now();
    Slot slot = workers_.empty() ? load_alone(taken_++) : take();
    wait_ += Clock::now() - start;
    if (slot.error) std::rethrow_exception(slot.error);
    return std::move(slot.batch);
  }

  double wait_seconds() const noexcept { return wait_.count(); }

  double work_seconds() const {
    const std::lock_guard lock(mutex_);
    return work_.count();
  }

 private:
  // ---- One batch. These functions take no lock. ----

  Slot open(std::int64_t k) {
    Slot slot = take_plan(k);
    if (slot.error) return slot;
    try {
      if (samples_ != nullptr) slot.samples.emplace(*samples_, slot.draws, layout_, &*buffers_);
      slot.pieces = samples_ != nullptr ? slot.draws.size() : 1;
    } catch (...) {
      slot.error = std::current_exception();
    }
    return slot;
  }

  /// A batch with its draws, or with the error of the plan.
  Slot plan(std::int64_t k) const {
    Slot slot{.k = k};
    try {
      slot.draws = plan_(k);
    } catch (...) {
      slot.error = std::current_exception();
    }
    return slot;
  }

  Slot take_plan(std::int64_t k) {
    if (plans_.empty()) {
      planned_ = k + 1;
      return plan(k);
    }
    Slot slot = std::move(plans_.front());
    plans_.pop_front();
    return slot;
  }

  /// Plans the batches after `k` and requests their files.
  void read_ahead(std::int64_t k) {
    if (files_ == nullptr) return;
    for (; planned_ < std::min(end_, k + 1 + options_.read_ahead); ++planned_) {
      plans_.push_back(plan(planned_));
      for (const batch::Draw& draw : plans_.back().draws) {
        try {
          files_->read_ahead(draw);
        } catch (...) {  // the error appears when the sample is loaded
          return void(++planned_);
        }
      }
    }
  }

  void load(Slot& slot, std::size_t piece) const {
    if (!slot.samples) {
      slot.batch = whole_batch(slot);
      return;
    }
    const std::string fault = fault_of([&] { slot.samples->load(piece); });
    if (!fault.empty()) throw fault_of_sample(slot.draws[piece], fault);
  }

  DataError fault_of_sample(const batch::Draw& draw, const std::string& fault) const {
    return DataError("sample " + std::to_string(draw.index) + " of " + options_.name + ": " + fault);
  }

  DataError fault_of_batch(std::int64_t k, const std::string& fault) const {
    return DataError(options_.name + ", batch " + std::to_string(k) + ": " + fault);
  }

  batch::Batch whole_batch(const Slot& slot) const {
    batch::Batch batch;
    const std::string fault = fault_of([&] { batch = fetched(slot.draws); });
    if (fault.empty()) return batch;
    for (const batch::Draw& draw : slot.draws) {  // one by one: which of them is it?
      const std::string its_fault = fault_of([&] { fetched(std::span(&draw, 1)); });
      if (!its_fault.empty()) throw fault_of_sample(draw, its_fault);
    }
    throw fault_of_batch(slot.k, fault);
  }

  /// The samples, all of them.
  batch::Batch fetched(std::span<const batch::Draw> draws) const {
    batch::Batch batch = dataset_->get(draws);
    if (batch.size() == static_cast<std::int64_t>(draws.size())) return batch;
    throw DataError("the data set gave " + std::to_string(batch.size()) + " samples instead of " +
                    std::to_string(draws.size()));
  }

  void finish(Slot& slot) const {
    if (slot.error) return;
    try {
      if (slot.samples) {
        const std::string fault = fault_of([&] { slot.batch = slot.samples->finish(); });
        if (!fault.empty()) throw fault_of_batch(slot.k, fault);
        slot.batch.set_roles(roles_);
      }
      slot.batch.set_draws(std::move(slot.draws));
      slot.samples.reset();
      if (options_.check) require_sound(slot.batch);
      if (options_.change) slot.batch = options_.change(std::move(slot.batch), slot.k);
      if (options_.pins_memory) slot.batch = batch::pinned(std::move(slot.batch));
    } catch (...) {
      slot.error = std::current_exception();
    }
  }

  void require_sound(const batch::Batch& batch) const {
    const std::optional<SampleFault> fault = options_.check(batch);
    if (fault) throw fault_of_sample(batch.draws()[static_cast<std::size_t>(fault->row)], fault->text);
  }

  /// Loads pieces of a batch and returns their first error with its piece.
  std::pair<std::exception_ptr, std::size_t> load_pieces(Slot& slot, std::size_t begin, std::size_t end, Worker& worker,
                                                         const std::stop_token& stop) const {
    std::pair<std::exception_ptr, std::size_t> first;
    for (std::size_t piece = begin; piece < end && !stop.stop_requested(); ++piece) {
      if (!slot.draws.empty()) worker.note(&slot.draws[piece]);
      try {
        load(slot, piece);
      } catch (...) {
        if (!first.first) first = {std::current_exception(), piece};
      }
    }
    worker.note(nullptr);
    return first;
  }

  Slot load_alone(std::int64_t k) {
    Slot slot = open(k);
    read_ahead(k);
    const auto start = Clock::now();
    if (!slot.error) slot.error = load_pieces(slot, 0, slot.pieces, alone_, {}).first;
    finish(slot);
    work_ += Clock::now() - start;
    return slot;
  }

  // ---- The queue. ----

  // At most `prefetch` batches are opened and not taken, so no two of them share a slot.
  Slot& slot_of(std::int64_t k) { return slots_[static_cast<std::size_t>(k) % slots_.size()]; }

  /// The batch with pieces that no thread has claimed, which is the one that was opened last; null = there is none.
  Slot* unclaimed() {
    if (opened_ == taken_) return nullptr;
    Slot& last = slot_of(opened_ - 1);
    return last.k == opened_ - 1 && last.claimed < last.pieces ? &last : nullptr;
  }

  bool may_open() const {
    return !is_opening_ && opened_ < std::min(end_, taken_ + static_cast<std::int64_t>(slots_.size()));
  }

  void work(const std::stop_token& stop, Worker& self) {
    std::unique_lock lock(mutex_);
    while (room_.wait(lock, stop, [this] { return unclaimed() != nullptr || may_open(); }) && !stop.stop_requested()) {
      Slot* const slot = unclaimed();
      slot != nullptr ? load_some(lock, *slot, self, stop) : open_next(lock);
    }
  }

  void open_next(std::unique_lock<std::mutex>& lock) {
    is_opening_ = true;
    const std::int64_t k = opened_;
    lock.unlock();
    Slot slot = open(k);
    if (slot.pieces == 0) {
      finish(slot);
      slot.is_ready = true;
    }
    lock.lock();
    slot_of(k) = std::move(slot);
    opened_ = k + 1;
    lock.unlock();
    room_.notify_all();
    ready_.notify_one();
    read_ahead(k);
    lock.lock();
    is_opening_ = false;
    room_.notify_all();
  }

  void load_some(std::unique_lock<std::mutex>& lock, Slot& slot, Worker& self, const std::stop_token& stop) {
    const std::size_t begin = slot.claimed;
    const std::size_t share = (slot.pieces - begin) / (2 * workers_.size());
    const std::size_t end = begin + std::clamp<std::size_t>(share, 1, kMaxPiecesAtOnce);
    slot.claimed = end;
    lock.unlock();
    const auto start = Clock::now();
    const auto [error, bad_piece] = load_pieces(slot, begin, end, self, stop);
    const Seconds spent = Clock::now() - start;
    lock.lock();
    work_ += spent;
    ++progress_;
    slot.loaded += end - begin;
    if (error && (!slot.error || bad_piece < slot.bad_piece)) {
      slot.error = error;
      slot.bad_piece = bad_piece;
    }
    if (slot.loaded < slot.pieces) return;
    lock.unlock();
    finish(slot);
    lock.lock();
    slot.is_ready = true;
    ready_.notify_one();
  }

  Slot take() {
    std::unique_lock lock(mutex_);
    Slot& wanted = slot_of(taken_);
    wait_until_ready(lock, wanted);
    Slot slot = std::exchange(wanted, Slot{});
    ++taken_;
    lock.unlock();
    room_.notify_all();
    return slot;
  }

  void wait_until_ready(std::unique_lock<std::mutex>& lock, const Slot& wanted) {
    const auto is_ready = [&wanted] { return wanted.is_ready; };
    if (options_.stall_seconds <= 0 || !options_.warn) return ready_.wait(lock, is_ready);
    std::int64_t seen = progress_;
    bool is_warned = false;
    while (!ready_.wait_for(lock, Seconds(options_.stall_seconds), is_ready)) {
      if (std::exchange(seen, progress_) == progress_) {
        if (!std::exchange(is_warned, true)) options_.warn(stall_text());
      } else {
        is_warned = false;
      }
    }
  }

  /// "sample 17 (photos/17.jpg)".
  std::string sample_text(const batch::Draw& draw) const {
    const std::string place = files_ != nullptr ? files_->place(draw) : "";
    return "sample " + std::to_string(draw.index) + (place.empty() ? "" : " (" + place + ")");
  }

  /// The samples that the threads load at the moment.
  std::vector<std::string> lines_of_workers() const {
    std::vector<std::string> lines;
    const auto add = [&](const Worker& worker, const std::string& name) {
      const auto draw = worker.draw();
      if (draw) lines.push_back(name + " loads " + sample_text(*draw) + " of " + options_.name);
    };
    add(alone_, "the training thread");
    for (std::size_t i = 0; i < workers_.size(); ++i) add(*workers_[i], "loader thread " + std::to_string(i));
    return lines;
  }

  std::string stall_text() const {
    std::string text;
    std::size_t count = 0;
    for (const auto& worker : workers_) {
      const auto draw = worker->draw();
      if (!draw || ++count > kMaxSamplesInWarning) continue;
      text += (text.empty() ? "" : ", ") + sample_text(*draw);
    }
    return options_.name + ": no sample has arrived for " + std::to_string(std::lround(options_.stall_seconds)) + " s" +
           (text.empty() ? "" : "; still loading " + text) + ". Check that the file system responds";
  }

  std::shared_ptr<const Dataset> dataset_;
  const SampleDataset* samples_;  ///< the data set, if it gives single samples; null = it gives batches
  const SampleFiles* files_;      ///< the data set, if its samples are in files
  std::vector<Field> layout_;     ///< layout of the samples
  std::shared_ptr<const batch::Roles> roles_;
  Plan plan_;
  LoaderOptions options_;
  std::optional<BatchBuffers> buffers_;
  std::vector<Slot> slots_;
  mutable std::mutex mutex_;
  std::condition_variable_any room_;
  std::condition_variable ready_;
  std::int64_t opened_;  // the next batch that a worker will open
  std::int64_t taken_;   // the next batch that the caller will get
  bool is_opening_ = false;
  std::int64_t planned_;  // the next batch to plan; with plans_, used by the thread that opens a batch
  std::deque<Slot> plans_;
  std::int64_t end_;
  std::int64_t progress_ = 0;  // grows whenever samples are loaded
  Seconds wait_{0};
  Seconds work_{0};
  Worker alone_;                                  // notes what the calling thread loads, if there are no others
  std::vector<std::unique_ptr<Worker>> workers_;  // joined before anything they use is gone
  std::optional<WorkerReport> report_;            // last: nobody asks for workers that are gone
};

Loader::Loader(std::shared_ptr<const Dataset> dataset, Plan plan, std::int64_t first, std::int64_t end,
               LoaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(dataset), std::move(plan), first, end, std::move(options))) {}

Loader::~Loader() = default;

batch::Batch Loader::next() { return impl_->next(); }

double Loader::wait_seconds() const noexcept { return impl_->wait_seconds(); }

double Loader::work_seconds() const { return impl_->work_seconds(); }

}  // namespace lockstep::data
