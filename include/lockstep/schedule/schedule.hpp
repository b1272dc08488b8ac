// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/section.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::schedule {

/// What a curve makes of a value: a pure function of the position, in the unit that the rule counts by, and of the
/// value that the rules before it leave.
using Shape = std::function<double(double position, double value)>;

/// What has been measured, such as "val/loss", by name; and what must survive a restart.
using Numbers = std::map<std::string, double>;

/// A curve that answers to measurements. All it learns is in its state.
class Feedback {
 public:
  virtual ~Feedback() = default;
  /// @throws ConfigError  what it watches is not among them
  virtual void observe(double position, const Numbers& measured) = 0;
  virtual double value(double value) const = 0;
  virtual Numbers state() const = 0;
  virtual void load_state(const Numbers& state) = 0;
};

struct Curve;

/// The positions [begin, end) in which a curve moves. Before `begin` a value passes unchanged, from `end` on a curve
/// stays where it has got to (constant: unchanged again). Options that count count from `begin`.
struct Window {
  double begin = 0;
  double end = 0;
  const std::vector<Curve>* curves = nullptr;  ///< for a curve that is made of others

  double width() const { return end - begin; }
};

/// A row of the table of curves. A user's program adds rows.
struct Curve {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< of the rule's own options, named without a section, in addition to the common ones
  /// @throws ConfigError  options that do not fit together; `parse` puts rule and origin before the message
  Shape (*make)(const Section& rule, Window window);
  /// In place of `make`, for a curve that answers to measurements.
  std::unique_ptr<Feedback> (*make_feedback)(const Section& rule, Window window) = nullptr;
};

/// constant, linear, quadratic, exponential, step, multistep, cosine, polynomial, inverse_sqrt, wsd, one_cycle, cyclic,
/// cosine_restart, composite, plateau.
const std::vector<Curve>& builtin_curves();

/// How long a run is. 0 = unknown, and a rule that needs it is refused.
struct RunLength {
  std::int64_t total_steps = 0;       ///< optimizer steps of the whole run
  std::int64_t steps_per_epoch = 0;   ///< for rules by epoch
  std::int64_t samples_per_step = 0;  ///< for rules by samples
};

/// One number of a parameter group.
struct Target {
  std::string option = "lr";
  std::string group = {};  ///< the group's name
  double base = 1;         ///< the value that the configuration gave it
};

/// What a list of rules makes of the options of parameter groups: a function of the step, and of what has been measured
/// where a rule answers to that. A resumed run needs the step and `state`.
class Schedule {
 public:
  struct Rule {
    std::string option;                      ///< that it moves
    std::string group;                       ///< whose option it moves; empty = every group's
    std::function<double(std::int64_t)> at;  ///< the position at an optimizer step
    Shape shape;                             ///< or
    std::unique_ptr<Feedback> feedback;
  };

  Schedule() = default;
  explicit Schedule(std::vector<Rule> rules) : rules_(std::move(rules)) {}

  /// In the update after `step` others. Each rule takes the value that the ones before it leave.
  double value(std::int64_t step, const Target& target = {}) const;
  /// Sets every option of a group that a rule moves. `momentum` is `beta1` where a group has no momentum.
  /// @param bases  what the configuration gave
  /// @throws ConfigError  no such option, naming those that there are
  void apply(std::int64_t step, const std::string& group, const Numbers& bases, Numbers& options) const;

  /// Names of the options of a group that rules move, as the group calls them.
  std::vector<std::string> moved(const std::string& group, const Numbers& options) const;

  /// @throws ConfigError  a rule names a group that is not among `groups`
  void require_groups(const std::vector<std::string>& groups) const;

  /// Whether any rule answers to measurements.
  bool has_feedback() const;
  /// Tells the rules what was measured after `step` updates.
  /// @throws ConfigError  what a rule watches is not among them
  void observe(std::int64_t step, const Numbers& measured);
  /// Of the rules that answer to measurements, each name with the rule's place: "2/best".
  Numbers state() const;
  /// @throws ConfigError  not a state of these rules
  void load_state(const Numbers& state);

 private:
  std::vector<Rule> rules_;
};

/// Reads `rules`, each written like "cosine,begin=100,final_factor=0.1". Within a rule, lists are separated by slashes:
/// "multistep,milestones=30/60". Every rule has the options begin, end, by, smooth, of, group and base.
///
/// @param rules   what `sched.rule` holds; empty = every value stays as it is
/// @param length  seed of the run: its end is the default of a rule's `end`
/// @param origin  where the rules came from, for messages
/// @throws ConfigError  unknown curve, unknown option or value out of range, citing rule and origin
Schedule parse(const std::vector<std::string>& rules, const RunLength& length, const std::string& origin,
               const std::vector<Curve>& curves = builtin_curves());

/// The keys of section `sched`.
KeySpecs sched_keys(const std::vector<Curve>& curves = builtin_curves());

}  // namespace lockstep::schedule
