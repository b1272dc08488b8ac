// SPDX-License-Identifier: BSD-3-Clause
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/text/text.hpp"
#include "engine/resume/components.hpp"
#include "engine/state/local_state.hpp"
#include "engine/state/paths.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using checkpoints::Array;

/// Calls visit(block, segment) for every parameter.
template <class Visit>
void for_each_segment(const OptimizerContext& place, const Visit& visit) {
  const auto blocks = place.part == nullptr ? place.store->blocks() : place.part->blocks();
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    for (std::size_t s = 0; s < blocks[b].segments.size(); ++s) visit(b, s);
  }
}

/// The numbers in the store of the parameters, in the model's order.
std::vector<std::size_t> parameters_of(const OptimizerContext& place) {
  std::vector<std::size_t> numbers;
  for_each_segment(place, [&](std::size_t b, std::size_t s) { numbers.push_back(place.parameter(b, s)); });
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

/// The path of one state array of one parameter.
std::string state_path(const OptimizerContext& place, std::size_t block, std::size_t segment, std::size_t slot) {
  return path(place.group + "/state/" + place.optimizer->state_names()[slot], place.segment(block, segment).name);
}

/// The shape, strides and type of a state array, as a meta tensor.
at::Tensor meta_tensor_of(const optim::StateArray& state) {
  const at::TensorOptions options = at::TensorOptions().dtype(parallel::scalar_type_of(state.dtype));
  const at::Tensor tensor = at::empty(state.shape, options.device(at::kMeta));
  return state.strides.empty() ? tensor : tensor.as_strided(state.shape, state.strides);
}

/// The part of one state array of one parameter on this rank; nullopt = none.
std::optional<LocalState> local_state(const OptimizerContext& place, std::size_t block, std::size_t segment,
                                      std::size_t slot) {
  const optim::Segment& part = place.segment(block, segment);
  const bool is_whole = place.store->shards() == nullptr || part.own_end - part.own_begin == part.count;
  if (!is_whole && part.own_begin >= part.own_end) return std::nullopt;
  const std::optional<optim::StateArray> state = place.optimizer->state_of(block, segment, slot);
  if (!state) return std::nullopt;
  const at::Device device = place.store->device();
  LocalState local{.path = state_path(place, block, segment, slot), .tensor = meta_tensor_of(*state), .device = device};
  if (is_whole) {
    const at::Tensor& like = local.tensor;
    local.tensor = at::from_blob(
        state->values, like.sizes(), like.strides(), [](void*) {}, like.options().device(device), device);
    return local;
  }
  const auto element = static_cast<std::int64_t>(local.tensor.element_size());
  local.begin = part.own_begin;
  local.bytes = {state->values + part.own_begin * element,
                 static_cast<std::size_t>((part.own_end - part.own_begin) * element)};
  return local;
}

/// The names of the parameters, one per line, in the model's order.
std::string parameter_names(const OptimizerContext& place) {
  std::string names;
  for (const std::size_t i : parameters_of(place)) names += place.store->parameter(i).name + "\n";
  return names;
}

/// Whether the archive has every number that the rule remembers, with a possible value.
bool has_numbers(const Archive& archive, const OptimizerContext& place) {
  constexpr double kMaxCount = 9007199254740992;  // above it, float64 does not count exactly
  const auto is_there = [&](const auto& number) {
    const std::string group = place.group + "/numbers";
    if (!archive.has_attribute(group, number.first)) return false;
    const double value = archive.real(group, number.first);
    return value >= 0 && value <= kMaxCount;
  };
  const auto& numbers = place.optimizer->numbers();
  return std::all_of(numbers.begin(), numbers.end(), is_there);
}

/// The differences between groups other than weight decay, which is configuration and may change.
std::set<std::string> without_decays(const std::vector<std::string>& names) {
  std::set<std::string> others;
  for (const std::string& name : names) {
    std::vector<std::string> parts = split_list(name, '+');
    std::erase_if(parts, [](const std::string& part) {
      return part == "all" || part == "rest" || part == "decay" || part == "no_decay" || part.starts_with("decay*") ||
             part.starts_with("weight_decay=");
    });
    others.insert(joined(parts, "+"));
  }
  return others;
}

class OptimizerComparison {
 public:
  OptimizerComparison(const OptimizerContext& place, const Archive& archive, CompatibilityReport& report)
      : place_(place), archive_(archive), report_(report) {}

  bool has_optimizer() const {
    return archive_.has_attribute(place_.group, "type") || archive_.has(place_.group + "/step");
  }

  void add(const std::string& text) {
    report_.add({.kind = MismatchKind::optimizer, .text = text, .remedies = {Remedy::reset_optimizer}});
  }

  void compare_update_counts() {
    const Array& steps = archive_.array(place_.group + "/step");
    const std::string names = stored_names();
    const std::vector<std::int64_t> count = {std::count(names.begin(), names.end(), '\n')};
    if (steps.dtype == DType::int64 && steps.shape == count) return;
    add(title() + " does not have one count of updates per parameter");
  }

  /// @return  whether the rules are the same, so that there is more to compare
  bool compare_rules() {
    const std::string& type = archive_.text(place_.group, "type");
    const std::string& live = place_.optimizer->rule().name;
    if (type != live) add(title() + " is " + type + ", the run's is " + live);
    return type == live;
  }

  void compare_states() {
    const std::vector<std::string>& slots = place_.optimizer->state_names();
    for_each_segment(place_, [&](std::size_t b, std::size_t s) {
      for (std::size_t slot = 0; slot < slots.size(); ++slot) {
        const auto state = place_.optimizer->state_of(b, s, slot);
        if (!state) continue;
        report_.expect_array(MismatchKind::optimizer, state_path(place_, b, s, slot), meta_tensor_of(*state),
                             {Remedy::reset_optimizer});
      }
    });
    if (stored_names() != parameter_names(place_)) add(title() + " contains other parameters, or another order");
    for (const std::string& slot : archive_.groups_in(place_.group + "/state")) {
      const bool is_known = std::find(slots.begin(), slots.end(), slot) != slots.end();
      if (!is_known) add(title() + " keeps " + slot + ", the run's does not");
    }
  }

  void compare_groups() {
    std::vector<std::string> saved;
    for (const std::string& group : archive_.groups_in(place_.group + "/groups")) {
      saved.push_back(archive_.text(place_.group + "/groups/" + group, "name"));
    }
    std::vector<std::string> live;
    for (const optim::ParamGroup& group : place_.optimizer->groups()) live.push_back(group.name);
    if (without_decays(saved) == without_decays(live)) return;
    const std::string owner = place_.name.empty() ? "its" : title() + "'s";
    add(owner + " parameter groups are [" + joined(saved) + "], the run's are [" + joined(live) + "]");
  }

  void compare_numbers() {
    if (!has_numbers(archive_, place_)) add(title() + " lacks some of its numbers");
  }

 private:
  /// The name in messages.
  std::string title() const { return "its optimizer" + (place_.name.empty() ? "" : " " + place_.name); }
  std::string stored_names() const { return checkpoints::text_of(archive_.array(place_.group + "/param_names")); }

  const OptimizerContext& place_;
  const Archive& archive_;
  CompatibilityReport& report_;
};

class OptimizerState : public Stateful {
 public:
  explicit OptimizerState(OptimizerContext place) : context_(std::move(place)) {}

  std::string name() const override { return context_.name.empty() ? "optimizer" : "optimizer " + context_.name; }
  bool is_restored(const RestoreOptions& options) const override { return !options.resets_optim; }

  void capture(const StateWriter& writer) override {
    capture_states(writer);
    writer.set(context_.group, "type", context_.optimizer->rule().name);
    writer.put(context_.group + "/param_names", checkpoints::text_array(parameter_names(context_)));
    writer.put(context_.group + "/step", array_of(update_counts(), DType::int64));
    capture_groups(writer);
    for (const auto& [name, value] : context_.optimizer->numbers())
      writer.set(context_.group + "/numbers", name, value);
  }

  void compare(const Archive& archive, const RestoreOptions& options, CompatibilityReport& report) override {
    OptimizerComparison comparison(context_, archive, report);
    if (!comparison.has_optimizer()) {
      return comparison.add(context_.name.empty() ? "it does not contain the state of the optimizer"
                                                  : "it does not contain an optimizer named " + context_.name);
    }
    comparison.compare_update_counts();  // which are restored whether or not the parameters fit
    if (options.is_partial || !comparison.compare_rules()) return;
    comparison.compare_states();
    comparison.compare_groups();
    comparison.compare_numbers();
  }

  /// Takes what fits; what does not was either refused before or is to be left as it is.
  void restore(const Archive& archive, const RestoreOptions&) override {
    const torch::NoGradGuard no_grad;
    load_update_counts(archive);
    if (has_all_states(archive)) {  // else the numbers would describe states that are not there
      for (auto& [name, value] : context_.optimizer->numbers()) value = archive.real(context_.group + "/numbers", name);
    }
    const auto take = [&] { visit_arrays([&](const LocalState& local) { load(archive, local); }); };
    if (context_.store->shards() != nullptr) return take();
    context_.store->write_whole(take);
  }

  Reproducibility reproducibility(const Archive&, const RestoreOptions& options) override {
    return options.resets_optim ? incomplete_state() : Reproducibility();
  }

  void visit_arrays(const std::function<void(const LocalState&)>& visit) override {
    for_each_segment(context_, [&](std::size_t b, std::size_t s) {
      for (std::size_t slot = 0; slot < context_.optimizer->state_names().size(); ++slot) {
        if (const auto local = local_state(context_, b, s, slot)) visit(*local);
      }
    });
  }

 private:
  void capture_states(const StateWriter& writer) {
    if (context_.store->shards() == nullptr) {
      return visit_arrays([&](const LocalState& local) { writer.put(local.path, local.tensor); });
    }
    if (context_.optimizer->rule().state_shape() != nullptr) return capture_owned_states(writer);
    const std::vector<std::string>& slots = context_.optimizer->state_names();
    const std::size_t blocks =
        context_.part == nullptr ? context_.store->blocks().size() : context_.part->blocks().size();
    for (std::size_t b = 0; b < blocks; ++b) {
      for (std::size_t slot = 0; slot < slots.size(); ++slot) {
        const auto state = context_.optimizer->state_of(b, 0, slot);
        if (!state) continue;
        capture_block(writer, context_.group + "/state/" + slots[slot], *context_.store, context_.in_store(b),
                      context_.optimizer->state(b, slot), state->dtype);
      }
    }
  }

  /// States with shapes of their own, each of which one rank has.
  void capture_owned_states(const StateWriter& writer) {
    const torch::NoGradGuard no_grad;
    for_each_segment(context_, [&](std::size_t b, std::size_t s) {
      for (std::size_t slot = 0; slot < context_.optimizer->state_names().size(); ++slot) {
        const auto state = context_.optimizer->state_of(b, s, slot);
        if (!state) continue;
        const at::Tensor like = meta_tensor_of(*state);
        const at::Tensor values = at::empty_like(like, like.options().device(context_.store->device()));
        if (const auto own = local_state(context_, b, s, slot)) values.copy_(own->tensor);
        context_.store->broadcast_from_owner(context_.in_store(b), s, values);
        writer.put(state_path(context_, b, s, slot), values);
      }
    });
  }

  void capture_groups(const StateWriter& writer) const {
    for (std::size_t g = 0; g < context_.optimizer->groups().size(); ++g) {
      const optim::ParamGroup& group = context_.optimizer->groups()[g];
      const std::string path = context_.group + "/groups/" + std::to_string(g);
      writer.set(path, "name", group.name);
      writer.set(path, "base_lr", group.base_lr);
      for (const auto& [option, value] : group.options) writer.set(path, option, value);
      if (context_.optimizer->groups().size() > 1)
        writer.put("/meta" + path, checkpoints::text_array(names_in_group(g)));
    }
  }

  /// The names of parameters, one per line, in the model's order.
  std::string names_in_group(std::size_t group) const {
    std::map<std::size_t, std::string> by_parameter;
    for_each_segment(context_, [&](std::size_t b, std::size_t s) {
      if (context_.optimizer->group_of(b, s) == group)
        by_parameter[context_.parameter(b, s)] = context_.segment(b, s).name;
    });
    std::string names;
    for (const auto& [parameter, name] : by_parameter) names += name + "\n";
    return names;
  }

  /// Updates that each parameter has had, in the model's order.
  std::vector<std::int64_t> update_counts() const {
    std::map<std::size_t, std::int64_t> by_parameter;
    for_each_segment(context_, [&](std::size_t b, std::size_t s) {
      by_parameter[context_.parameter(b, s)] = context_.optimizer->steps(b)[s];
    });
    std::vector<std::int64_t> counts;
    for (const auto& [parameter, count] : by_parameter) counts.push_back(count);
    return counts;
  }

  /// The same of the archive, by the parameter's name.
  std::map<std::string, std::int64_t> stored_update_counts(const Archive& archive) const {
    const at::Tensor steps = tensor_over(archive.array(context_.group + "/step"));
    const auto names = lines_in(checkpoints::text_of(archive.array(context_.group + "/param_names")));
    std::map<std::string, std::int64_t> by_name;
    for (std::int64_t i = 0; i < std::min(std::ssize(names), steps.numel()); ++i) {
      by_name[names[static_cast<std::size_t>(i)]] = steps.const_data_ptr<std::int64_t>()[i];
    }
    return by_name;
  }

  /// Counts of the parameters whose values were taken from the archive.
  void load_update_counts(const Archive& archive) const {
    const std::map<std::string, std::int64_t> counts = stored_update_counts(archive);
    for_each_segment(context_, [&](std::size_t b, std::size_t s) {
      const auto found = counts.find(context_.segment(b, s).name);
      if (found == counts.end()) return;
      const at::Tensor& parameter = context_.store->parameter(context_.parameter(b, s)).tensor;
      const bool is_taken = fitting(archive, path(kParameters, found->first), parameter) != nullptr;
      if (is_taken) context_.optimizer->steps(b)[s] = found->second;
    });
  }

  bool has_all_states(const Archive& archive) {
    bool is_all_there = has_numbers(archive, context_);
    visit_arrays([&](const LocalState& local) {
      is_all_there = is_all_there && fitting(archive, local.path, local.tensor) != nullptr;
    });
    return is_all_there;
  }

  OptimizerContext context_;
};

/// Which optimizers there are.
class PartsState : public Stateful {
 public:
  explicit PartsState(const Updates& updates) {
    for (const auto& [name, optimizer] : updates.parts) names_.push_back(name);
  }

  std::string name() const override { return "parts of the optimizer"; }
  bool is_restored(const RestoreOptions& options) const override { return !options.resets_optim; }
  void capture(const StateWriter&) override {}
  void restore(const Archive&, const RestoreOptions&) override {}

  void compare(const Archive& archive, const RestoreOptions&, CompatibilityReport& report) override {
    std::vector<std::string> stored = archive.groups_in(kOptimizers);
    if (stored == std::vector<std::string>{"0"}) stored = {""};
    if (stored.empty() || stored == names_) return;
    report.add({.kind = MismatchKind::optimizer,
                .text = "its optimizer has " + words_for(stored) + ", the run's has " + words_for(names_),
                .remedies = {Remedy::reset_optimizer}});
  }

 private:
  static std::string words_for(const std::vector<std::string>& names) {
    if (names.front().empty()) return "no parts";
    return (names.size() == 1 ? "the part " : "the parts ") + joined(names);
  }

  std::vector<std::string> names_;
};

}  // namespace

std::size_t OptimizerContext::in_store(std::size_t block) const {
  return part == nullptr ? block : part->in_store(block);
}

const optim::Segment& OptimizerContext::segment(std::size_t block, std::size_t segment) const {
  return store->blocks()[in_store(block)].segments[segment];
}

std::size_t OptimizerContext::parameter(std::size_t block, std::size_t segment) const {
  return store->index_of(in_store(block), segment);
}

std::shared_ptr<Stateful> parts_state(Run& run) { return std::make_shared<PartsState>(run.updates); }

std::shared_ptr<Stateful> optimizer_state(OptimizerContext place) {
  return std::make_shared<OptimizerState>(std::move(place));
}

}  // namespace lockstep::engine
