// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <cstdint>
#include <optional>
#include <regex>
#include <span>
#include <string>
#include <vector>

namespace lockstep::optim {

/// Keys of section `optim` that divide parameters into groups.
KeySpecs group_keys();

struct ParameterGroups {
  std::vector<ParamGroup> groups;
  std::vector<std::string> remarks;         ///< remarks for the log: what is frozen, tied, or matches nothing
  std::vector<std::string> unmatched = {};  ///< the remarks about texts that match nothing
};

/// Divides parameters into groups of equal options, by `optim.no_decay` and the texts of `optim.paramwise`:
///
///     bias_lr_mult=2,norm_decay_mult=0            for kinds of parameters
///     custom:backbone,lr_mult=0.1,decay_mult=0    for names that hold `backbone`
///     re:block[0-9]+\..*,weight_decay=0.1         for names that match as a whole
///
/// The first `re:` that matches counts, else the longest `custom:` (of equal ones the first by the alphabet); then
/// nothing else holds for the parameter but layer_decay, which always multiplies. A name without a dot is looked for as
/// if it began with one. Without such a text, weight decay is that for norms, else for biases, else for depthwise
/// convolutions, else for parameters of one dimension.
///
/// A group's name says how its options differ from what the configuration gives all: "lr*0.1+no_decay". So neither
/// names nor groups depend on how they were written. One group alone is "all"; what differs in nothing is "decay" in
/// addition to other weight decays, else "rest".
class ParamGroupBuilder {
 public:
  /// @throws ConfigError  unknown or impossible options, citing `optim.paramwise`
  ParamGroupBuilder(const Section& optim, const Rule& rule);

  /// @param parameters  of the whole model, in its order
  /// @throws ConfigError  a parameter has two names, but nothing says bypass_duplicate=true; or two groups one name
  ParameterGroups build(std::span<const ParameterInfo> parameters) const;

 private:
  /// Parameters by name, and what holds for them alone.
  struct Selection {
    std::string text;   // pattern as written, without options
    std::string infix;  // or
    std::optional<std::regex> pattern;
    std::string group;  // the name of a group of their own; else empty
    Options options;

    bool matches(const std::string& name) const;
  };
  struct Resolved {
    std::string group;
    Options options;
    bool operator==(const Resolved&) const = default;
  };

  void read(const std::string& text, const Section& optim, const Rule& rule);
  Selection read_selection(const std::string& text, const Section& optim, const Rule& rule) const;
  void sort_selections();
  const Selection* selection_of(const std::string& parameter) const;
  std::string remark_on_duplicate(const ParameterInfo& parameter) const;
  /// A factor for a kind of parameters; none = it has the options of all.
  std::optional<double> multiplier(const std::string& key) const;
  double lr_factor(const ParameterInfo& parameter) const;
  double decay_factor(const ParameterInfo& parameter) const;
  Resolved resolve(const ParameterInfo& parameter, const Selection* selection) const;
  std::string name_of(const Resolved& group, int digits) const;
  void name_groups(std::vector<ParamGroup>& groups, const std::vector<Resolved>& resolved) const;

  bool has_spared_;  // optim.no_decay: no weight decay on flat and undecayed parameters
  std::vector<std::string> paramwise_;
  std::string place_;  // how messages cite optim.paramwise
  Section kinds_;      // options for kinds of parameters, as in "bias_lr_mult=2,norm_decay_mult=0"
  Options base_;
  std::vector<Selection> selections_;  // the one that counts first
};

/// How learning rates follow the batch: lr * batch / base_batch, or lr * sqrt(batch / base_batch).
/// Source: Goyal et al., "Accurate, large minibatch SGD", 2017, section 2.1; of the square root: Krizhevsky, "One weird
/// trick for parallelizing convolutional neural networks", 2014, section 5.
struct LrScale {
  std::int64_t batch = 0;       ///< samples of a step that count
  std::int64_t base_batch = 0;  ///< samples for which the configured lr is meant; 0 = optim.auto_scale_lr is off
  bool is_square_root = false;

  double factor() const;
};

/// Keys of section `optim` that scale learning rates with the batch.
KeySpecs lr_scale_keys();
/// @param samples_per_step     over all ranks
/// @param samples_per_forward  of them, in one micro_batch over all ranks
/// @throws ConfigError  optim.auto_scale_lr without optim.base_batch_size
LrScale lr_scale(const Section& optim, std::int64_t samples_per_step, std::int64_t samples_per_forward);

/// Multiplies the learning rates of all groups.
/// @throws std::logic_error  a schedule drives them: it has taken over their learning rates
void scale_lr(std::span<ParamGroup> groups, const LrScale& scale);

}  // namespace lockstep::optim
