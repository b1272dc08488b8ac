// SPDX-License-Identifier: BSD-3-Clause
#include <torch/types.h>

#include <algorithm>
#include <map>

#include "core/text/text.hpp"
#include "engine/resume/components.hpp"
#include "engine/resume/optimizer_arrays.hpp"
#include "engine/state/local_state.hpp"
#include "engine/state/paths.hpp"
#include "engine/state/tensor_arrays.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;

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
    compare_optimizer(context_, archive, options, report);
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

std::shared_ptr<Stateful> parts_state(Run& run) { return std::make_shared<PartsState>(run.updates); }

std::shared_ptr<Stateful> optimizer_state(OptimizerContext place) {
  return std::make_shared<OptimizerState>(std::move(place));
}

}  // namespace lockstep::engine
