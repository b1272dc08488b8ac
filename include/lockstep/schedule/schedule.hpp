// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::schedule {

/// The function of a curve: a pure function of the position, in the unit of the rule, and of the value after the
/// previous rules.
using CurveShape = std::function<double(double position, double value)>;

/// Numbers by name: measured values, such as "val/loss", or the state of a curve.
using Numbers = std::map<std::string, double>;

/// A curve that depends on measurements.
class Feedback {
 public:
  virtual ~Feedback() = default;
  /// @throws ConfigError  the metric that it monitors is missing
  virtual void observe(double position, const Numbers& measured) = 0;
  virtual double value(double value) const = 0;
  virtual Numbers state() const = 0;
  virtual void load_state(const Numbers& state) = 0;
};

struct Curve;

/// The positions [begin, end) of a curve. Before `begin`, a value is not changed; from `end` on, a curve keeps its last
/// value (constant = no change). Positions in options are counted from `begin`.
struct Window {
  double begin = 0;
  double end = 0;
  const std::vector<Curve>* curves = nullptr;  ///< table of curves, used by curves that consist of other curves

  double width() const { return end - begin; }
};

/// A row of the table of curves. A program can append rows to engine::Registry::curves.
struct Curve {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< keys of the options of the rule, without a section, in addition to the common ones
  /// @throws ConfigError  the options contradict each other; `parse` adds rule and origin to the message
  CurveShape (*make)(const Section& rule, Window window);
  /// Instead of `make`, for a curve that depends on measurements.
  std::unique_ptr<Feedback> (*make_feedback)(const Section& rule, Window window) = nullptr;
};

/// constant, linear, quadratic, exponential, step, multistep, cosine, polynomial, inverse_sqrt, wsd, one_cycle, cyclic,
/// cosine_restart, composite, plateau.
const std::vector<Curve>& builtin_curves();

/// The options that every rule has.
const KeySpecs& common_curve_keys();

/// The length of a run. 0 = unknown; rules that need the value are then rejected.
struct RunLength {
  std::int64_t total_steps = 0;       ///< optimizer steps of the whole run
  std::int64_t steps_per_epoch = 0;   ///< used by rules with by=epoch
  std::int64_t samples_per_step = 0;  ///< used by rules with by=samples
};

/// One option of a parameter group.
struct Target {
  std::string option = "lr";
  std::string group = {};  ///< the group's name
  std::string part = {};   ///< part of the parameters to which the group belongs, see optim.part
  double base = 1;         ///< the configured value
};

/// A parameter group of a run.
struct GroupName {
  std::string name;
  std::string part = {};  ///< see optim.part; empty = the run has no parts

  GroupName(std::string group, std::string part_name = {})
      : name(std::move(group)), part(std::move(part_name)) {}  // NOLINT
  GroupName(const char* group) : name(group) {}                // NOLINT
};

/// A schedule: the values of the options of parameter groups as a function of the step and, for some rules, of
/// measurements. It is defined by a list of rules. A resumed run needs the step and `state`.
class Schedule {
 public:
  struct ScheduledRule {
    std::string option;                            ///< option that it changes
    std::string group;                             ///< parameter group; empty = all groups
    std::string part = {};                         ///< part of the model; empty = all parts
    std::function<double(std::int64_t)> position;  ///< position at an optimizer step
    CurveShape shape;                              ///< or
    std::unique_ptr<Feedback> feedback;
  };

  Schedule() = default;
  /// @param unused  sentences about rules that begin after the end of the run
  explicit Schedule(std::vector<ScheduledRule> rules, std::vector<std::string> unused = {})
      : rules_(std::move(rules)), unused_(std::move(unused)) {}

  /// The value in the update after `step` updates. Each rule is applied to the result of the previous rules.
  double value(std::int64_t step, const Target& target = {}) const;
  /// Sets every option of a group that a rule changes. `momentum` is `beta1` if a group has no momentum.
  /// @param bases  the configured values
  /// @throws ConfigError  the option is unknown; the message lists the known ones
  void apply(std::int64_t step, const GroupName& group, const Numbers& bases, Numbers& options) const;

  /// The names of the options of a group that rules change.
  std::vector<std::string> moved(const GroupName& group, const Numbers& options) const;

  /// @throws ConfigError  the group or the part of a rule is not in `groups`
  void require_groups(const std::vector<GroupName>& groups) const;

  /// A sentence for each rule that begins after the end of the run and therefore has no effect.
  const std::vector<std::string>& unused() const noexcept { return unused_; }

  /// Whether a rule depends on measurements.
  bool has_feedback() const;
  /// Passes the values measured after `step` updates to the rules.
  /// @throws ConfigError  the metric that a rule monitors is missing
  void observe(std::int64_t step, const Numbers& measured);
  /// The state of the rules that depend on measurements; names contain the position of the rule: "2/best".
  Numbers state() const;
  /// @throws ConfigError  the state does not match these rules
  void load_state(const Numbers& state);

 private:
  std::vector<ScheduledRule> rules_;
  std::vector<std::string> unused_;
};

/// Parses `rules`, such as "cosine,begin=100,final_factor=0.1". A word without '=' continues a
/// list: "multistep,milestones=30,60". Every rule has the options begin, end, by, smooth, of, group and base.
///
/// @param rules   the value of `sched.rule`; empty = constant values
/// @param length  length of the run, which is the default of `end`. A rule that begins there or later is not used, see
///                Schedule::unused
/// @param origin  origin of the rules, for messages
/// @throws ConfigError  a curve or option is unknown, or a value is out of range; the message states rule and origin
Schedule parse(const std::vector<std::string>& rules, const RunLength& length, const std::string& origin,
               const std::vector<Curve>& curves = builtin_curves());

/// The keys of section `sched`.
KeySpecs sched_keys(const std::vector<Curve>& curves = builtin_curves());

}  // namespace lockstep::schedule
