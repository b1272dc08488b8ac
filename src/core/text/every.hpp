// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// The steps and epochs that a run has done.
struct RunPosition {
  std::int64_t step = 0;           ///< steps done
  std::int64_t total_steps = -1;   ///< steps of the whole run; -1 = not known
  std::int64_t epoch = 0;          ///< epochs completed
  std::int64_t step_in_epoch = 0;  ///< steps done in the current epoch

  /// The number, from 1, of the epoch of the last step.
  std::int64_t epoch_of_step() const noexcept { return step_in_epoch == 0 ? epoch : epoch + 1; }
};

/// The first step or epoch, counted from 1, of an action: "100" or "2epochs". 0 = the beginning of the run.
struct Begin {
  std::int64_t number = 0;
  bool is_epoch = false;

  /// @throws ConfigError  the text is malformed; begins with `cite`
  static Begin parse(const std::string& text, const std::string& cite);

  /// Whether the last step is this step or a later one, or belongs to this epoch or to a later one.
  bool is_reached(const RunPosition& position) const noexcept;
  /// The first step that reaches it, if every epoch has this number of steps.
  std::int64_t first_step(std::int64_t steps_per_epoch) const noexcept;
  std::string text() const;  ///< the text that `parse` reads

  bool operator==(const Begin&) const = default;
};

/// The times of a repeated action. Each of them is checked separately; the action is due if one of them is.
struct Repetition {
  Begin begin = {};         ///< start of these times
  std::int64_t steps = 0;   ///< steps between two actions; 0 = none
  std::int64_t epochs = 0;  ///< epochs between two actions; 0 = none
  double seconds = 0;       ///< seconds between two actions; 0 = none
  bool is_at_end = false;   ///< the action follows the last step of the run

  bool is_never() const noexcept { return steps == 0 && epochs == 0 && seconds == 0 && !is_at_end; }
  bool operator==(const Repetition&) const = default;
};

/// The pattern of every repeated action:
///
///     500          every 500 steps                 10min       every 10 minutes; also s and h
///     2epochs      at the end of every 2nd epoch   end         after the last step
///     500+end      several of these                never       not at all
///     500 then 100@10000        every 500 steps, from step 10000 on every 100
///     1epochs then never@5epochs  after each epoch; from epoch 5 on not at all
///
/// Steps and epochs count from 1. Except for times, a pure function of the position, so that a resumed run needs
/// nothing else. The clock of times is that of the action.
class Every {
 public:
  /// The times that an action accepts in addition to steps and epochs.
  struct Accepted {
    bool times = true;
    bool never = true;
  };

  Every(std::int64_t steps = 0)
      : repetitions_({{.steps = steps}}) {}  // NOLINT: a number is a number of steps; 0 = never
  /// A pattern that does not change during the run.
  explicit Every(const Repetition& repetition) : repetitions_({repetition}) {}

  /// @throws ConfigError  the text is malformed or is not accepted; begins with `cite`
  static Every parse(const std::string& text, const std::string& cite, const Accepted& accepted = {true, true});

  /// Whether the action follows the last step, according to steps, epochs and `end`.
  bool is_due(const RunPosition& position) const noexcept;
  /// The seconds between two actions in the step at this position; 0 = the clock does not count.
  double seconds_at(const RunPosition& position) const noexcept { return at(position).seconds; }
  /// The steps between two actions at this position, at least 1.
  std::int64_t steps_at(const RunPosition& position, std::int64_t steps_per_epoch) const noexcept;

  bool has_times() const noexcept;
  bool is_never() const noexcept;
  /// Whether it is a number of steps and nothing else, such as 500.
  bool is_step_count() const noexcept;
  /// The repetition from the start of the run on.
  const Repetition& first() const noexcept { return repetitions_.front(); }
  std::string text() const;  ///< the text that `parse` reads

  bool operator==(const Every&) const = default;

 private:
  const Repetition& at(const RunPosition& position) const noexcept;

  std::vector<Repetition> repetitions_;  // never empty
};

/// The text of a list of intervals as earlier versions wrote it, in today's form: "500,10000:100" with the unit "" is
/// "500 then 100@10000". "" = the list is malformed, or its first number is 0 and means never.
/// @param unit  of all numbers: "" for steps, or "epochs"
std::string every_of_intervals(const std::string& intervals, const std::string& unit);

}  // namespace lockstep
