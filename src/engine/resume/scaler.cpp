// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <stdexcept>

#include "engine/resume/components.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;

class ScalerState : public Stateful {
 public:
  ScalerState(std::string group, optim::OptimWrapper& optimizer, const mpi::Communicator& world)
      : group_(std::move(group)), optimizer_(&optimizer), world_(&world) {}

  std::string name() const override { return "loss scale " + group_; }
  bool is_restored(const RestoreOptions& options) const override { return !options.resets_optim; }

  void capture(const StateWriter& writer) override {
    const optim::GradScaler* const scaler = optimizer_->scaler();
    if (scaler == nullptr) return;
    writer.set(group_, "scale", scaler->scale());
    writer.set(group_, "growth_tracker", scaler->state().growth_tracker);
    writer.set(group_, "skipped_steps", scaler->state().skipped_steps);
    writer.set(group_, "skipped_in_a_row", scaler->state().skipped_in_a_row);
    writer.set(group_, "growth_factor", scaler->options().growth_factor);
    writer.set(group_, "backoff_factor", scaler->options().backoff_factor);
    writer.set(group_, "growth_interval", scaler->options().growth_interval);
  }

  void restore(const Archive& archive, const RestoreOptions&) override {
    if (optimizer_->scaler() == nullptr) return;
    if (!archive.has_attribute(group_, "scale")) {
      log::info("the loss scale starts from train.init_scale: the checkpoint contains none");
      return;
    }
    world_->all_or_throw([&] { load_from(archive); });
  }

 private:
  void load_from(const Archive& archive) {
    try {
      optimizer_->scaler()->load_state({.scale = archive.real(group_, "scale"),
                                        .growth_tracker = archive.integer(group_, "growth_tracker"),
                                        .skipped_steps = archive.integer(group_, "skipped_steps"),
                                        .skipped_in_a_row = archive.integer(group_, "skipped_in_a_row")});
    } catch (const std::invalid_argument&) {
      throw CheckpointError(archive.origin(), group_,
                            "it is not a state of the loss scaler; resume.reset=optim starts from the initial scale");
    }
  }

  std::string group_;
  optim::OptimWrapper* optimizer_;
  const mpi::Communicator* world_;
};

}  // namespace

std::shared_ptr<Stateful> scaler_state(std::string group, optim::OptimWrapper& optimizer,
                                       const mpi::Communicator& world) {
  return std::make_shared<ScalerState>(std::move(group), optimizer, world);
}

}  // namespace lockstep::engine
