// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/engine/stateful.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "engine/evaluation/evaluation_counts.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/steps/perf_timer.hpp"

namespace lockstep::engine {

namespace {

class TrainMetersHook : public Hook {
 public:
  TrainMetersHook(MeterNames names, std::vector<metrics::MeterRow> rows)
      : Hook(HookReads::nothing(), {hook_state("train_meters", std::bind_front(&TrainMetersHook::save, this),
                                               std::bind_front(&TrainMetersHook::load, this))}),
        named_(std::move(names)),
        rows_(std::move(rows)) {}

  void before_train(RunView& run) override {
    run.world.all_or_throw([&] { fresh_ = make_meters(named_, run.data.splits().train->task(), rows_); });
  }

  void before_epoch(RunView& run) override {
    const mpi::Communicator& world = run.world;
    meters_ = fresh_;
    samples_ = 0;
    const EpochSoFar resumed = std::exchange(so_far_, {});
    const bool goes_on = run.progress.step_in_epoch > 0 && resumed.samples > 0;
    if (goes_on && world.is_root()) take(resumed);
    // Numbers that no other rank gives to its samples, nor gave to those that were counted before.
    next_ = (static_cast<std::int64_t>(world.rank()) << kBitsOfNumbers) + (goes_on ? resumed.samples : 0);
  }

  void on_loss(RunView& run, const LastBatch& last) override {
    if (!last.is_training || meters_.is_empty()) return;
    const PerfScope timer("meters_update", run.perf);
    try {
      add_to(meters_, last.outputs, *last.batch, next_);
    } catch (...) {
      run.requests.fail(std::current_exception());  // this rank owes backward and update to the others
    }
    next_ += last.batch->size();
    samples_ += last.batch->size();
  }

  void after_epoch(RunView& run) override {
    if (meters_.is_empty()) return;
    sum_over_ranks(meters_, run.collectives);
    Record record{.kind = "epoch",
                  .values = {{"step", run.progress.step},
                             {"epoch", run.progress.epoch},
                             {"train/samples", run.world.all_reduce(samples_)}}};
    run.world.all_or_throw([&] {
      for (const auto& [name, number] : meters_.read().numbers) record.values.emplace_back("train/" + name, number);
      run.report(record);
    });
  }

  void before_save(RunView& run) override {
    so_far_ = {};
    if (run.progress.step_in_epoch == 0 || meters_.is_empty()) return;
    metrics::Meters all = meters_;
    sum_over_ranks(all, run.collectives);
    so_far_ = {.names = names(),
               .samples = run.world.all_reduce(samples_),
               .sums = {all.sums().begin(), all.sums().end()},
               .packed = all.packed()};
  }

 private:
  static constexpr int kBitsOfNumbers = 40;

  /// The sums that all ranks have counted since the epoch began.
  struct EpochSoFar {
    std::string names = {};    // names of the numbers that are computed from it
    std::int64_t samples = 0;  // 0 = an epoch begins
    std::vector<std::int64_t> sums = {};
    std::vector<std::byte> packed = {};  // outputs, packed, if a meter needs all samples
  };

  void save(checkpoints::Archive& archive, const std::string& group) const {
    if (so_far_.samples == 0) return;
    archive.set(group, "names", so_far_.names);
    archive.set(group, "samples", so_far_.samples);
    const auto held = std::make_shared<EpochSoFar>(so_far_);
    const auto put = [&](const char* name, DType dtype, std::size_t count, std::span<const std::byte> bytes) {
      if (count == 0) return;
      archive.put(group + "/" + name,
                  {.dtype = dtype, .shape = {static_cast<std::int64_t>(count)}, .bytes = bytes, .owner = held});
    };
    put("counts", DType::int64, held->sums.size(), std::as_bytes(std::span(held->sums)));
    put("outputs", DType::uint8, held->packed.size(), held->packed);
  }

  void load(const checkpoints::Archive& archive, const std::string& group) {
    const auto bytes_of = [&](const char* name) {
      const std::string path = group + "/" + name;
      return archive.has(path) ? archive.array(path).bytes : std::span<const std::byte>();
    };
    so_far_ = {.names = archive.text(group, "names"), .samples = archive.integer(group, "samples")};
    const std::span<const std::byte> counts = bytes_of("counts");
    so_far_.sums.resize(counts.size() / sizeof(std::int64_t));
    if (!counts.empty()) std::memcpy(so_far_.sums.data(), counts.data(), so_far_.sums.size() * sizeof(std::int64_t));
    const std::span<const std::byte> outputs = bytes_of("outputs");
    so_far_.packed.assign(outputs.begin(), outputs.end());
  }

  std::string names() const {
    std::string names;
    for (const metrics::Result& result : fresh_.results()) names += (names.empty() ? "" : ",") + result.name;
    return names;
  }

  void take(const EpochSoFar& resumed) {
    if (resumed.names != names() || resumed.sums.size() != meters_.sums().size()) {
      log::info("train.metrics starts counting at this step: the checkpoint used other metrics");
      return;
    }
    std::copy(resumed.sums.begin(), resumed.sums.end(), meters_.sums().begin());
    if (meters_.needs_all_samples()) meters_.take_gathered(std::vector<std::vector<std::byte>>{resumed.packed});
    samples_ = resumed.samples;
  }

  MeterNames named_;
  std::vector<metrics::MeterRow> rows_;
  metrics::Meters fresh_;   // that have counted nothing
  metrics::Meters meters_;  // meters of this epoch
  std::int64_t next_ = 0;
  std::int64_t samples_ = 0;
  EpochSoFar so_far_;  // content of the checkpoint that is being written, or was read
};

}  // namespace

PrioritizedHook train_meters_hook(const MeterNames& names, const std::vector<metrics::MeterRow>& meters) {
  return {Priority::normal, std::make_unique<TrainMetersHook>(names, meters)};
}

}  // namespace lockstep::engine
