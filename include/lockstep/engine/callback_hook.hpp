// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/run_view.hpp>

#include <functional>
#include <memory>

namespace lockstep::engine {

/// A function for each event of a hook; empty ones are skipped. The hook reads the report of every step
/// (Hook::reads_report) if it has after_step or between_steps.
struct Callbacks {
  std::function<void(RunView&)> before_train = {};
  std::function<void(RunView&)> before_epoch = {};
  std::function<void(RunView&)> before_step = {};
  std::function<void(RunView&, const LastBatch&)> on_forward = {};
  std::function<void(RunView&, const LastBatch&)> on_loss = {};
  std::function<void(RunView&, const LastBatch&)> on_backward = {};
  std::function<void(RunView&, const LastBatch&)> on_update = {};
  std::function<void(RunView&)> before_agreement = {};
  std::function<void(RunView&, const StepReport&)> on_measured = {};
  std::function<void(RunView&, const StepReport&)> after_step = {};
  std::function<void(RunView&)> after_epoch = {};
  std::function<void(RunView&, const StepReport&)> between_steps = {};
  std::function<void(RunView&)> before_roll_back = {};
  std::function<void(RunView&)> after_roll_back = {};
  std::function<void(RunView&)> before_evaluation = {};
  std::function<void(RunView&, const Measured&)> after_evaluation = {};
  std::function<void(RunView&, Outcome)> after_train = {};
  bool reads_gradients = false;  ///< see Hook::reads_gradients
};

/// Creates a hook from functions, for a row of Registry::hooks. It has no state in checkpoints. After after_train it
/// releases its functions; later calls do nothing.
std::unique_ptr<Hook> callback_hook(Callbacks callbacks);

}  // namespace lockstep::engine
