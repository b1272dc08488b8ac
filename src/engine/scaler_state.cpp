// SPDX-License-Identifier: BSD-3-Clause
#include "scaler_state.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <stdexcept>

namespace lockstep::engine {

void capture_scaler(checkpoints::Archive& archive, const std::string& group, const optim::OptimWrapper& optimizer) {
  const optim::GradScaler* const scaler = optimizer.scaler();
  if (scaler == nullptr) return;
  archive.set(group, "scale", scaler->scale());
  archive.set(group, "growth_tracker", scaler->state().growth_tracker);
  archive.set(group, "skipped_steps", scaler->state().skipped_steps);
  archive.set(group, "skipped_in_a_row", scaler->state().skipped_in_a_row);
  archive.set(group, "growth_factor", scaler->options().growth_factor);
  archive.set(group, "backoff_factor", scaler->options().backoff_factor);
  archive.set(group, "growth_interval", scaler->options().growth_interval);
}

void restore_scaler(optim::OptimWrapper& optimizer, const checkpoints::Archive& archive, const std::string& group) {
  if (optimizer.scaler() == nullptr) return;
  if (!archive.has_attribute(group, "scale")) {
    log::info("the loss scale begins anew: the checkpoint holds none");
    return;
  }
  try {
    optimizer.scaler()->load_state({.scale = archive.real(group, "scale"),
                                    .growth_tracker = archive.integer(group, "growth_tracker"),
                                    .skipped_steps = archive.integer(group, "skipped_steps"),
                                    .skipped_in_a_row = archive.integer(group, "skipped_in_a_row")});
  } catch (const std::invalid_argument&) {
    throw CheckpointError(archive.origin(), group,
                          "it is no state of loss scaling; with resume.reset=optim it begins anew");
  }
}

}  // namespace lockstep::engine
