// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/train_step.hpp>

#include <optional>

namespace lockstep::engine {

/// The row that train.step_kind names.
/// @throws ConfigError  an unknown name, with the nearest known one
const StepRow& chosen_step(const Section& train, const std::vector<StepRow>& rows);
/// A step in its explicit form.
struct MadeStep {
  ManualStep run;
  bool reads_late = false;                   ///< see StepRow::reads_late
  std::optional<StepOptions> captured = {};  ///< options of the captured form; none = there is no such form
};
/// The step that the row makes which train.step_kind names.
/// @throws ConfigError  also: the row made nothing
MadeStep make_step(const Section& train, const std::vector<StepRow>& rows);
/// Key `step_kind` of section `train`, which describes the rows.
KeySpec step_key(const std::vector<StepRow>& rows);

}  // namespace lockstep::engine
