// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/engine/hook.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "core/keys/cited.hpp"

namespace lockstep::checkpoints {
class Archive;
}
namespace lockstep::optim {
class GradScaler;
}

namespace lockstep::engine {

/// End of messages about numbers that are not finite.
inline constexpr const char* kNonfiniteAdvice =
    ". The last checkpoint is kept. Reduce optim.lr, or clip gradients with train.clip_norm=1.0";

struct NonfiniteSettings {
  Cited<std::string> policy = {"stop"};  ///< stop, skip or roll_back
  std::int64_t max_roll_backs = 3;       ///< >= 0

  /// Keys nonfinite and max_roll_backs of section `train`.
  static KeySpecs keys();
  static NonfiniteSettings from(const Section& train);
  bool operator==(const NonfiniteSettings&) const = default;
};

/// The actions of train.nonfinite when a loss or a gradient is not finite:
///
///     stop       the run ends; the last checkpoint is kept
///     skip       no parameter and no moment changes in that step, and the run continues; steps are counted
///     roll_back  the run goes back to its last checkpoint and trains on from there; a step to which it went back
///                before, or without a checkpoint, is skipped
///
/// Under loss scaling (train.precision=fp16) steps are skipped anyway, and only a loss that is not finite comes here.
class NonfiniteHook : public Hook {
 public:
  enum class NonfiniteAction { go_on, roll_back };

  explicit NonfiniteHook(NonfiniteSettings settings)
      : Hook(HookReads::nothing(), states_of(settings)),  // the loop calls `judge` with each complete report
        policy_(std::move(settings.policy.value)),
        max_roll_backs_(settings.max_roll_backs) {}

  /// The verdict on a step, whose loss the ranks have agreed on. On every rank with the same.
  /// @param step    its number, counted from 1
  /// @param scaler  null = losses are not scaled
  /// @throws NumericError  agreed: the run is to end
  NonfiniteAction judge(std::int64_t step, const StepReport& report, const optim::GradScaler* scaler);

 private:
  std::vector<std::shared_ptr<Stateful>> states_of(const NonfiniteSettings& settings);
  void save(checkpoints::Archive& archive, const std::string& group) const;
  /// Adds to what this run knows: a run that went back keeps what it has learned since.
  void load(const checkpoints::Archive& archive, const std::string& group);
  NonfiniteAction judge_fault(std::int64_t step, const std::string& what, bool is_skipped);
  void count_in_a_row(std::int64_t step, const std::string& what);
  bool rolls_back(std::int64_t step, const std::string& what);

  std::string policy_;
  std::int64_t max_roll_backs_;
  std::int64_t skipped_ = 0;
  std::int64_t in_a_row_ = 0;
  std::int64_t last_step_ = -1;
  std::vector<std::int64_t> rolled_back_;  // steps
};

}  // namespace lockstep::engine
