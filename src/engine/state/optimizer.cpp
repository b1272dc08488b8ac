// SPDX-License-Identifier: BSD-3-Clause
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "state/components.hpp"
#include "state/local_state.hpp"
#include "state/paths.hpp"
#include "state/tensor_arrays.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using checkpoints::Array;

/// A tensor over a whole state array, or with device meta only a description of it.
at::Tensor tensor_of(const optim::StateArray& state, at::Device device) {
  const at::TensorOptions options = at::TensorOptions().dtype(parallel::scalar_type_of(state.dtype)).device(device);
  at::Tensor like = at::empty(state.shape, options.device(at::kMeta));
  if (!state.strides.empty()) like = like.as_strided(state.shape, state.strides);
  if (device.is_meta()) return like;
  return at::from_blob(
      state.values, like.sizes(), like.strides(), [](void*) {}, options, device);
}

/// One a line, in the model's order.
std::string names_in(const parallel::ParameterStore& store) {
  std::string names;
  for (std::size_t i = 0; i < store.size(); ++i) names += store.parameter(i).name + "\n";
  return names;
}

class OptimizerState : public Stateful {
 public:
  explicit OptimizerState(OptimizerPlace place) : at_(std::move(place)) {}

  std::string name() const override { return at_.name.empty() ? "optimizer" : "optimizer " + at_.name; }
  bool is_restored(const RestoreOptions& options) const override { return !options.resets_optim; }

  void capture(const StateWriter& writer) override {
    capture_states(writer);
    writer.set(at_.group, "type", at_.optimizer->rule().name);
    writer.put(at_.group + "/param_names", checkpoints::text_array(names_in(*at_.store)));
    writer.put(at_.group + "/step", array_of(update_counts(), DType::int64));
    for (std::size_t g = 0; g < at_.optimizer->groups().size(); ++g) {
      const optim::ParamGroup& group = at_.optimizer->groups()[g];
      const std::string path = at_.group + "/groups/" + std::to_string(g);
      writer.set(path, "name", group.name);
      writer.set(path, "base_lr", group.base_lr);
      for (const auto& [option, value] : group.options) writer.set(path, option, value);
    }
    for (const auto& [name, value] : at_.optimizer->numbers()) writer.set(at_.group + "/numbers", name, value);
  }

  void compare(const Archive& archive, const RestoreOptions& options, CompatibilityReport& report) override {
    if (!at_.name.empty() && !archive.has_attribute(at_.group, "type")) {
      return add(report, "it has no optimizer of the name " + at_.name);
    }
    compare_update_counts(archive, report);
    if (options.is_partial) return;
    const std::string& type = archive.text(at_.group, "type");
    if (type != at_.optimizer->rule().name) {
      return add(report, title() + " is " + type + ", the run's is " + at_.optimizer->rule().name);
    }
    compare_states(archive, report);
    compare_groups(archive, report);
    if (!has_numbers(archive)) add(report, title() + " has not all numbers that it remembers");
  }

  /// Takes what fits; what does not was either refused before or is to be left as it is.
  void restore(const Archive& archive, const RestoreOptions&) override {
    const torch::NoGradGuard no_grad;
    load_update_counts(archive);
    if (has_all_states(archive)) {  // else the numbers would describe states that are not there
      for (auto& [name, value] : at_.optimizer->numbers()) value = archive.real(at_.group + "/numbers", name);
    }
    const auto take = [&] { visit_arrays([&](const LocalState& local) { load(archive, local); }); };
    if (at_.store->shards() != nullptr) return take();
    at_.store->write_whole(take);
  }

  Reproducibility reproducibility(const Archive&, const RestoreOptions& options) override {
    return options.resets_optim ? incomplete_state() : Reproducibility();
  }

  void visit_arrays(const std::function<void(const LocalState&)>& visit) override {
    for_each_segment([&](std::size_t b, std::size_t s) {
      for (std::size_t slot = 0; slot < at_.optimizer->state_names().size(); ++slot) {
        if (const auto local = local_state_of(b, s, slot)) visit(*local);
      }
    });
  }

 private:
  /// In messages.
  std::string title() const { return "its optimizer" + (at_.name.empty() ? "" : " " + at_.name); }

  std::string group_of_slot(std::size_t slot) const {
    return at_.group + "/state/" + at_.optimizer->state_names()[slot];
  }

  const std::string& name_of_segment(std::size_t block, std::size_t segment) const {
    return at_.store->blocks()[block].segments[segment].name;
  }

  /// Calls visit(block, segment) for every parameter.
  template <class Visit>
  void for_each_segment(const Visit& visit) const {
    for (std::size_t b = 0; b < at_.store->blocks().size(); ++b) {
      for (std::size_t s = 0; s < at_.store->blocks()[b].segments.size(); ++s) visit(b, s);
    }
  }

  /// What this rank holds of one state array of one parameter; nullopt: nothing.
  std::optional<LocalState> local_state_of(std::size_t block, std::size_t segment, std::size_t slot) const {
    const optim::Segment& of = at_.store->blocks()[block].segments[segment];
    const bool is_whole = at_.store->shards() == nullptr || of.own_end - of.own_begin == of.count;
    if (!is_whole && of.own_begin >= of.own_end) return std::nullopt;
    const std::optional<optim::StateArray> state = at_.optimizer->state_of(block, segment, slot);
    if (!state) return std::nullopt;
    const at::Device device = at_.store->device();
    LocalState local{.path = path(group_of_slot(slot), of.name),
                     .tensor = tensor_of(*state, is_whole ? device : at::Device(at::kMeta)),
                     .begin = is_whole ? 0 : of.own_begin,
                     .device = device};
    const auto element = static_cast<std::int64_t>(local.tensor.element_size());
    const std::int64_t count = is_whole ? local.tensor.numel() : of.own_end - of.own_begin;
    local.bytes = {state->values + local.begin * element, static_cast<std::size_t>(count * element)};
    return local;
  }

  void capture_states(const StateWriter& writer) {
    if (at_.store->shards() == nullptr) {
      return visit_arrays([&](const LocalState& local) { writer.put(local.path, local.tensor); });
    }
    for (std::size_t b = 0; b < at_.store->blocks().size(); ++b) {
      for (std::size_t slot = 0; slot < at_.optimizer->state_names().size(); ++slot) {
        const auto state = at_.optimizer->state_of(b, 0, slot);
        if (!state) continue;
        capture_block(writer, group_of_slot(slot), *at_.store, b, at_.optimizer->state(b, slot), state->dtype);
      }
    }
  }

  /// Updates that each parameter has had, in the model's order.
  std::vector<std::int64_t> update_counts() const {
    std::vector<std::int64_t> counts(at_.store->size());
    for_each_segment(
        [&](std::size_t b, std::size_t s) { counts[at_.store->index_of(b, s)] = at_.optimizer->steps(b)[s]; });
    return counts;
  }

  static void add(CompatibilityReport& report, const std::string& text) {
    report.add({.kind = MismatchKind::optimizer, .text = text, .remedies = {Remedy::reset_optimizer}});
  }

  /// Restoring reads the counts whether or not the parameters fit.
  void compare_update_counts(const Archive& archive, CompatibilityReport& report) const {
    const Array& steps = archive.array(at_.group + "/step");
    const std::string names = checkpoints::text_of(archive.array(at_.group + "/param_names"));
    const std::vector<std::int64_t> count = {std::count(names.begin(), names.end(), '\n')};
    if (steps.dtype == DType::int64 && steps.shape == count) return;
    add(report, title() + " has not one count of updates for each of its parameters");
  }

  void compare_states(const Archive& archive, CompatibilityReport& report) const {
    const std::vector<std::string>& known = at_.optimizer->state_names();
    for_each_segment([&](std::size_t b, std::size_t s) {
      for (std::size_t slot = 0; slot < known.size(); ++slot) {
        const std::optional<optim::StateArray> state = at_.optimizer->state_of(b, s, slot);
        if (!state) continue;
        report.expect_array(MismatchKind::optimizer, path(group_of_slot(slot), name_of_segment(b, s)),
                            tensor_of(*state, at::kMeta), {Remedy::reset_optimizer});
      }
    });
    if (checkpoints::text_of(archive.array(at_.group + "/param_names")) != names_in(*at_.store)) {
      add(report, title() + " holds other parameters, or in another order");
    }
    for (const std::string& slot : archive.groups_in(at_.group + "/state")) {
      if (std::find(known.begin(), known.end(), slot) == known.end()) {
        add(report, title() + " keeps " + slot + ", the run's does not");
      }
    }
  }

  void compare_groups(const Archive& archive, CompatibilityReport& report) const {
    std::string saved;
    for (const std::string& group : archive.groups_in(at_.group + "/groups")) {
      saved += (saved.empty() ? "" : ", ") + archive.text(at_.group + "/groups/" + group, "name");
    }
    std::string live;
    for (const optim::ParamGroup& group : at_.optimizer->groups()) live += (live.empty() ? "" : ", ") + group.name;
    if (saved == live) return;
    add(report, (at_.name.empty() ? "its" : title() + "'s") + " parameter groups are [" + saved + "], the run's are [" +
                    live + "]");
  }

  /// Whether the archive has every number that the rule remembers, with a possible value.
  bool has_numbers(const Archive& archive) const {
    constexpr double kMaxCount = 9007199254740992;  // above it, float64 does not count exactly
    const auto is_there = [&](const auto& number) {
      const std::string group = at_.group + "/numbers";
      if (!archive.has_attribute(group, number.first)) return false;
      const double value = archive.real(group, number.first);
      return value >= 0 && value <= kMaxCount;
    };
    const auto& numbers = at_.optimizer->numbers();
    return std::all_of(numbers.begin(), numbers.end(), is_there);
  }

  bool has_all_states(const Archive& archive) {
    bool is_all_there = has_numbers(archive);
    visit_arrays([&](const LocalState& local) {
      is_all_there = is_all_there && fitting(archive, local.path, local.tensor) != nullptr;
    });
    return is_all_there;
  }

  /// Updates that each parameter of the archive has had, by its name.
  std::map<std::string, std::int64_t> stored_update_counts(const Archive& archive) const {
    const at::Tensor steps = tensor_over(archive.array(at_.group + "/step"));
    std::istringstream names(checkpoints::text_of(archive.array(at_.group + "/param_names")));
    std::map<std::string, std::int64_t> by_name;
    std::int64_t index = 0;
    for (std::string name; std::getline(names, name) && index < steps.numel(); ++index) {
      by_name[name] = steps.const_data_ptr<std::int64_t>()[index];
    }
    return by_name;
  }

  /// Of the parameters whose values were taken from the archive.
  void load_update_counts(const Archive& archive) const {
    const std::map<std::string, std::int64_t> counts = stored_update_counts(archive);
    for_each_segment([&](std::size_t b, std::size_t s) {
      const auto found = counts.find(name_of_segment(b, s));
      if (found == counts.end()) return;
      const at::Tensor& parameter = at_.store->parameter(at_.store->index_of(b, s)).tensor;
      const bool is_taken = fitting(archive, path(kParameters, found->first), parameter) != nullptr;
      if (is_taken) at_.optimizer->steps(b)[s] = found->second;
    });
  }

  OptimizerPlace at_;
};

}  // namespace

std::shared_ptr<Stateful> optimizer_state(OptimizerPlace place) {
  return std::make_shared<OptimizerState>(std::move(place));
}

}  // namespace lockstep::engine
