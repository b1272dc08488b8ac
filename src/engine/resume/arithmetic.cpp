// SPDX-License-Identifier: BSD-3-Clause
#include "engine/resume/components.hpp"
#include "parallel/store/parameter_store.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using Level = Reproducibility::Degree;

class ArithmeticState : public Stateful {
 public:
  explicit ArithmeticState(Strategy& strategy)
      : ranks_(strategy.world().size()),
        lanes_(strategy.lanes()),
        threads_(strategy.threads()),
        stage_(strategy.model().options().sharding.stage),
        copies_(strategy.model().store().copies()),
        precision_(strategy.precision()),
        tf32_(strategy.tf32()),
        param_dtype_(strategy.param_dtype().text()) {}

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
    return worst_of({by_lanes(archive), by_stage(archive), by_copies(archive), by_precision(archive), by_tf32(archive),
                     by_param_dtype(archive), by_ranks(archive), by_threads(archive)});
  }

 private:
  Reproducibility by_lanes(const Archive& archive) const {
    const std::int64_t lanes = archive.integer("/", "lanes");
    if (lanes == lanes_) return {};
    return {Level::statistical, "train.lanes is " + std::to_string(lanes_) + " and was " + std::to_string(lanes) +
                                    ", which changes batch norm, dropout and sums"};
  }

  Reproducibility by_stage(const Archive& archive) const {
    const std::int64_t stage = archive.has_attribute("/", "sharding") ? archive.integer("/", "sharding") : 0;
    if (stage == stage_ || ranks_ == 1) return {};
    return {Level::order, "it was written by a run of sharding stage " + std::to_string(stage) +
                              " (0: none), which rounds sums otherwise"};
  }

  Reproducibility by_copies(const Archive& archive) const {
    const std::int64_t copies = archive.has_attribute("/", "shard_copies") ? archive.integer("/", "shard_copies") : 1;
    if (copies == copies_ || stage_ == 0) return {};
    return {Level::order, "the ranks hold " + std::to_string(copies_) + " and held " + std::to_string(copies) +
                              " copies of the sharded state (strategy.shard_within), which rounds sums otherwise"};
  }

  Reproducibility by_precision(const Archive& archive) const {
    if (!archive.has_attribute("/", "precision") || archive.text("/", "precision") == precision_) return {};
    return {Level::statistical, "train.precision is " + precision_ + " and was " + archive.text("/", "precision")};
  }

  /// A run without the attribute computed on a CPU or, before the key existed, exactly.
  Reproducibility by_tf32(const Archive& archive) const {
    std::string was = "none";
    if (archive.has_attribute("/", "tf32")) {
      was = archive.text("/", "tf32");
    } else if (archive.has_attribute("/", "precision") && archive.text("/", "precision") == "tf32") {
      was = "all";
    }
    if (was == tf32_) return {};
    return {Level::statistical,
            "the products in TF32 (run.tf32) are now " + tf32_ + " and were " + was + " (none on a CPU)"};
  }

  /// Parameters of another type do not fit. Here remain updates that differ.
  Reproducibility by_param_dtype(const Archive& archive) const {
    const std::string was = archive.has_attribute("/", "param_dtype") ? archive.text("/", "param_dtype") : "";
    if (was == param_dtype_ || was.empty() || param_dtype_.empty()) return {};
    return {Level::statistical, "the run has " + param_dtype_ + " and was written with " + was};
  }

  Reproducibility by_ranks(const Archive& archive) const {
    const std::int64_t ranks = archive.integer("/", "world_size");
    if (ranks == ranks_ || lanes_ > 0) return {};
    return {Level::order, "it was written by " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
                              " and train.lanes is off"};
  }

  Reproducibility by_threads(const Archive& archive) const {
    const std::int64_t threads = archive.integer("/", "threads");
    if (threads == threads_) return {};
    return {Level::order, "it was written with run.threads = " + std::to_string(threads)};
  }

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

std::shared_ptr<Stateful> arithmetic_state(Strategy& strategy) { return std::make_shared<ArithmeticState>(strategy); }

}  // namespace lockstep::engine
