// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/evaluation.hpp>
#include <lockstep/engine/hooks.hpp>
#include <lockstep/engine/trainer.hpp>

#include <exception>

namespace lockstep::engine {

namespace {

class TrainMetersHook : public Hook {
 public:
  TrainMetersHook(const Section& train, std::vector<metrics::MeterRow> rows) : train_(train), rows_(std::move(rows)) {}

  void before_train(Trainer& trainer) override {
    trainer.strategy().world().together([&] { fresh_ = make_meters(train_, trainer.splits().train->task(), rows_); });
  }

  void before_epoch(Trainer& trainer) override {
    meters_ = fresh_;
    // Numbers that no other rank gives to its samples.
    next_ = static_cast<std::int64_t>(trainer.strategy().world().rank()) << kBitsOfNumbers;
    samples_ = 0;
  }

  void on_loss(Trainer& trainer, const LastBatch& last) override {
    if (!last.is_training || meters_.is_empty()) return;
    const PerfScope timer("meters_update", trainer.perf());
    try {
      meters_.add(metrics::samples_of(last.output, last.target, next_));
    } catch (...) {
      trainer.fail(std::current_exception());  // this rank owes backward and update to the others
    }
    next_ += last.target.size(0);
    samples_ += last.target.size(0);
  }

  void after_epoch(Trainer& trainer) override {
    if (meters_.is_empty()) return;
    sum_over_ranks(meters_, trainer.strategy().collectives());
    Record record{.kind = "epoch",
                  .values = {{"step", trainer.progress().step},
                             {"epoch", trainer.progress().epoch},
                             {"train/samples", trainer.strategy().world().all_reduce(samples_)}}};
    trainer.strategy().world().together([&] {
      for (const auto& [name, number] : meters_.read().numbers) record.values.emplace_back("train/" + name, number);
    });
    trainer.report(record);
  }

 private:
  static constexpr int kBitsOfNumbers = 40;

  Section train_;
  std::vector<metrics::MeterRow> rows_;
  metrics::Meters fresh_;   // that have counted nothing
  metrics::Meters meters_;  // of this epoch
  std::int64_t next_ = 0;
  std::int64_t samples_ = 0;
};

}  // namespace

std::unique_ptr<Hook> train_meters_hook(const Section& train, const std::vector<metrics::MeterRow>& meters) {
  return std::make_unique<TrainMetersHook>(train, meters);
}

}  // namespace lockstep::engine
