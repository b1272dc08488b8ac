// SPDX-License-Identifier: BSD-3-Clause
#include "engine/resume/components.hpp"
#include "parallel/store/parameter_store.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using Level = Reproducibility::Degree;

/// @param absent  the value of runs that do not store it
std::int64_t number_in(const Archive& archive, const std::string& name, std::int64_t absent) {
  return archive.has_attribute("/", name) ? archive.integer("/", name) : absent;
}

std::string text_in(const Archive& archive, const std::string& name, const std::string& absent) {
  return archive.has_attribute("/", name) ? archive.text("/", name) : absent;
}

class ArithmeticState : public Stateful {
 public:
  explicit ArithmeticState(Run& run)
      : ranks_(run.resources.world.size()),
        lanes_(run.data.layout().lanes),
        threads_(run.resources.threads),
        stage_(run.model.wrapper->options().sharding.stage),
        copies_(run.model.wrapper->store().copies()),
        precision_(run.model.precision.name.value),
        tf32_(run.resources.tf32),
        param_dtype_(run.model.param_dtype.text()) {}

  std::string name() const override { return "arithmetic"; }

  void capture(const StateWriter& writer) override {
    writer.set("/", "world_size", ranks_);
    writer.set("/", "lanes", lanes_);
    writer.set("/", "threads", threads_);
    writer.set("/", "sharding", stage_);
    if (copies_ > 1) writer.set("/", "shard_copies", copies_);
    writer.set("/", "precision", precision_);
    if (tf32_ != "none") writer.set("/", "tf32", tf32_);
    if (!param_dtype_.empty()) writer.set("/", "param_dtype", param_dtype_);
  }

  void restore(const Archive&, const RestoreOptions&) override {}

  Reproducibility reproducibility(const Archive& archive, const RestoreOptions&) override {
    const std::int64_t lanes = archive.integer("/", "lanes");
    const std::int64_t stage = number_in(archive, "sharding", 0);
    const std::int64_t copies = number_in(archive, "shard_copies", 1);
    const std::int64_t ranks = archive.integer("/", "world_size");
    const std::int64_t threads = archive.integer("/", "threads");
    const std::string precision = text_in(archive, "precision", "");
    // A run without the attribute computed on a CPU or, before the key existed, exactly.
    const std::string tf32 = text_in(archive, "tf32", precision == "tf32" ? "all" : "none");
    const std::string dtype = text_in(archive, "param_dtype", "");
    std::vector<Reproducibility> all;
    const auto note = [&all](bool is_other, Level level, const std::string& reason) {
      if (is_other) all.push_back({level, reason});
    };
    note(lanes != lanes_, Level::statistical,
         "train.lanes is " + std::to_string(lanes_) + " and was " + std::to_string(lanes) +
             ", which changes batch norm, dropout and sums");
    note(stage != stage_ && ranks_ > 1, Level::order,
         "it was written by a run of sharding stage " + std::to_string(stage) +
             " (0: none), which rounds sums differently");
    note(copies != copies_ && stage_ > 0, Level::order,
         "the ranks hold " + std::to_string(copies_) + " and held " + std::to_string(copies) +
             " copies of the sharded state (strategy.shard_within), which rounds sums differently");
    note(precision != precision_ && !precision.empty(), Level::statistical,
         "train.precision is " + precision_ + " and was " + precision);
    note(tf32 != tf32_, Level::statistical,
         "the products in TF32 (run.tf32) are now " + tf32_ + " and were " + tf32 + " (none on a CPU)");
    // Parameters of another type do not fit. Here remain updates that differ.
    note(dtype != param_dtype_ && !dtype.empty() && !param_dtype_.empty(), Level::statistical,
         "the run has " + param_dtype_ + " and was written with " + dtype);
    note(ranks != ranks_ && lanes_ == 0, Level::order,
         "it was written by " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") + " and train.lanes is off");
    note(threads != threads_, Level::order, "it was written with run.threads = " + std::to_string(threads));
    return worst_of(all);
  }

 private:
  std::int64_t ranks_;
  std::int64_t lanes_;    // 0 = off
  std::int64_t threads_;  // threads of each rank
  std::int64_t stage_;    // stage of sharding; 0 = every rank has everything
  std::int64_t copies_;   // copies of the sharded state
  std::string precision_;
  std::string tf32_;  // convolutions, all or none
  std::string param_dtype_;
};

}  // namespace

std::shared_ptr<Stateful> arithmetic_state(Run& run) { return std::make_shared<ArithmeticState>(run); }

}  // namespace lockstep::engine
