// SPDX-License-Identifier: BSD-3-Clause
#include "optimizer_state.hpp"

#include <torch/types.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "state_names.hpp"
#include "tensor_arrays.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using checkpoints::Array;

/// A tensor over a whole state array, or with device meta of its kind alone.
at::Tensor tensor_of(const optim::StateArray& state, at::Device device) {
  const at::TensorOptions options = at::TensorOptions().dtype(parallel::scalar_type_of(state.dtype)).device(device);
  at::Tensor like = at::empty(state.shape, options.device(at::kMeta));
  if (!state.strides.empty()) like = like.as_strided(state.shape, state.strides);
  if (device.is_meta()) return like;
  return at::from_blob(
      state.values, like.sizes(), like.strides(), [](void*) {}, options, device);
}

std::string group_of_slot(const OptimizerPlace& place, std::size_t slot) {
  return place.group + "/state/" + place.optimizer->state_names()[slot];
}

const at::Tensor& parameter_of(const OptimizerPlace& place, std::size_t block, std::size_t segment) {
  return place.store->parameter(place.store->index_of(block, segment)).tensor;
}

/// One a line, in the model's order.
std::string names_in(const parallel::ParameterStore& store) {
  std::string names;
  for (std::size_t i = 0; i < store.size(); ++i) names += store.parameter(i).name + "\n";
  return names;
}

/// Calls visit(block, segment) for every parameter.
template <class Visit>
void for_each_segment(const OptimizerPlace& place, const Visit& visit) {
  for (std::size_t b = 0; b < place.store->blocks().size(); ++b) {
    for (std::size_t s = 0; s < place.store->blocks()[b].segments.size(); ++s) visit(b, s);
  }
}

void capture_states(Archive& archive, const OptimizerPlace& place, bool is_writer) {
  if (place.store->shards() == nullptr) {
    if (!is_writer) return;
    return for_each_state(place, [&](const HeldState& held) { archive.put(held.at, array_of(held.like, held.at)); });
  }
  for (std::size_t b = 0; b < place.store->blocks().size(); ++b) {
    for (std::size_t slot = 0; slot < place.optimizer->state_names().size(); ++slot) {
      const auto state = place.optimizer->state_of(b, 0, slot);
      if (!state) continue;
      capture_block(archive, group_of_slot(place, slot), *place.store, b, place.optimizer->state(b, slot), state->dtype,
                    is_writer);
    }
  }
}

void compare_groups(Differences& differences, const Archive& archive, const OptimizerPlace& place) {
  std::string saved;
  for (const std::string& group : archive.groups_in(place.group + "/groups")) {
    saved += (saved.empty() ? "" : ", ") + archive.text(place.group + "/groups/" + group, "name");
  }
  std::string live;
  for (const optim::ParamGroup& group : place.optimizer->groups()) live += (live.empty() ? "" : ", ") + group.name;
  if (saved == live) return;
  const bool is_only_one = place.title == "its optimizer";
  differences.add((is_only_one ? "its" : place.title + "'s") + " parameter groups are [" + saved +
                      "], the run's are [" + live + "]",
                  place.remedy);
}

/// Whether the archive has every number that the rule remembers, as it could have counted it.
bool has_numbers(const Archive& archive, const OptimizerPlace& place) {
  constexpr double kMost = 9007199254740992;  // what counts exactly
  const auto is_there = [&](const auto& number) {
    const std::string at = place.group + "/numbers";
    if (!archive.has_attribute(at, number.first)) return false;
    const double value = archive.real(at, number.first);
    return value >= 0 && value <= kMost;
  };
  const auto& numbers = place.optimizer->numbers();
  return std::all_of(numbers.begin(), numbers.end(), is_there);
}

/// Updates that each parameter of the archive has had, by its name.
std::map<std::string, std::int64_t> steps_by_name(const Archive& archive, const OptimizerPlace& place) {
  const at::Tensor steps = tensor_over(archive.array(place.group + "/step"));
  std::istringstream names(checkpoints::text_of(archive.array(place.group + "/param_names")));
  std::map<std::string, std::int64_t> by_name;
  std::int64_t index = 0;
  for (std::string name; std::getline(names, name) && index < steps.numel(); ++index) {
    by_name[name] = steps.const_data_ptr<std::int64_t>()[index];
  }
  return by_name;
}

}  // namespace

void for_each_state(const OptimizerPlace& place, const std::function<void(const HeldState&)>& visit) {
  for_each_segment(place, [&](std::size_t b, std::size_t s) {
    const optim::Segment& segment = place.store->blocks()[b].segments[s];
    const bool is_whole = place.store->shards() == nullptr || segment.own_end - segment.own_begin == segment.count;
    const std::int64_t begin = is_whole ? 0 : segment.own_begin;
    const std::int64_t end = is_whole ? segment.count : segment.own_end;
    for (std::size_t slot = 0; (is_whole || begin < end) && slot < place.optimizer->state_names().size(); ++slot) {
      const std::optional<optim::StateArray> state = place.optimizer->state_of(b, s, slot);
      if (!state) continue;
      HeldState held{.at = path(group_of_slot(place, slot), segment.name),
                     .like = tensor_of(*state, is_whole ? place.store->device() : at::Device(at::kMeta)),
                     .begin = begin,
                     .bytes = {},
                     .values = nullptr,
                     .device = place.store->device()};
      const auto element = static_cast<std::int64_t>(held.like.element_size());
      const std::int64_t count = is_whole ? held.like.numel() : end - begin;
      held.bytes = {state->values + begin * element, static_cast<std::size_t>(count * element)};
      visit(held);
    }
  });
}

void capture_optimizer(Archive& archive, const OptimizerPlace& place, bool is_writer) {
  capture_states(archive, place, is_writer);
  if (!is_writer) return;
  const optim::Optimizer& optimizer = *place.optimizer;
  std::vector<std::int64_t> steps(place.store->size());
  for_each_segment(
      place, [&](std::size_t b, std::size_t s) { steps[place.store->index_of(b, s)] = place.optimizer->steps(b)[s]; });
  archive.set(place.group, "type", optimizer.rule().name);
  archive.put(place.group + "/param_names", checkpoints::text_array(names_in(*place.store)));
  archive.put(place.group + "/step", array_of(std::move(steps), DType::int64));
  for (std::size_t g = 0; g < optimizer.groups().size(); ++g) {
    const optim::ParamGroup& group = optimizer.groups()[g];
    const std::string at = place.group + "/groups/" + std::to_string(g);
    archive.set(at, "name", group.name);
    archive.set(at, "base_lr", group.base_lr);
    for (const auto& [option, value] : group.options) archive.set(at, option, value);
  }
  for (const auto& [name, value] : optimizer.numbers()) archive.set(place.group + "/numbers", name, value);
}

void compare_steps(Differences& differences, const Archive& archive, const OptimizerPlace& place) {
  const Array& steps = archive.array(place.group + "/step");
  const std::string names = checkpoints::text_of(archive.array(place.group + "/param_names"));
  const std::vector<std::int64_t> count = {std::count(names.begin(), names.end(), '\n')};
  if (steps.dtype == DType::int64 && steps.shape == count) return;
  differences.add(place.title + " has not one count of updates for each of its parameters", place.remedy);
}

void compare_optimizer(Differences& differences, const Archive& archive, const OptimizerPlace& place) {
  const optim::Optimizer& optimizer = *place.optimizer;
  const std::string& type = archive.text(place.group, "type");
  if (type != optimizer.rule().name) {
    return differences.add(place.title + " is " + type + ", the run's is " + optimizer.rule().name, place.remedy);
  }
  for_each_segment(place, [&](std::size_t b, std::size_t s) {
    for (std::size_t slot = 0; slot < optimizer.state_names().size(); ++slot) {
      const std::optional<optim::StateArray> state = optimizer.state_of(b, s, slot);
      if (!state) continue;
      differences.expect_array(path(group_of_slot(place, slot), place.store->blocks()[b].segments[s].name),
                               tensor_of(*state, at::kMeta), place.remedy);
    }
  });
  if (checkpoints::text_of(archive.array(place.group + "/param_names")) != names_in(*place.store)) {
    differences.add(place.title + " holds other parameters, or in another order", place.remedy);
  }
  for (const std::string& slot : archive.groups_in(place.group + "/state")) {
    const auto& known = optimizer.state_names();
    if (std::find(known.begin(), known.end(), slot) == known.end()) {
      differences.add(place.title + " keeps " + slot + ", the run's does not", place.remedy);
    }
  }
  compare_groups(differences, archive, place);
  if (!has_numbers(archive, place))
    differences.add(place.title + " has not all numbers that it remembers", place.remedy);
}

void load_optimizer(const Archive& archive, const OptimizerPlace& place) {
  const torch::NoGradGuard no_grad;
  const std::map<std::string, std::int64_t> steps = steps_by_name(archive, place);
  for_each_segment(place, [&](std::size_t b, std::size_t s) {
    const auto found = steps.find(place.store->blocks()[b].segments[s].name);
    if (found == steps.end()) return;
    const bool is_taken = fitting(archive, path(kParameters, found->first), parameter_of(place, b, s)) != nullptr;
    if (is_taken) place.optimizer->steps(b)[s] = found->second;
  });
  bool is_all_there = has_numbers(archive, place);
  for_each_state(place, [&](const HeldState& held) {
    is_all_there = is_all_there && fitting(archive, held.at, held.like) != nullptr;
  });
  if (is_all_there) {  // else the numbers would speak of states that are not
    for (auto& [name, value] : place.optimizer->numbers()) value = archive.real(place.group + "/numbers", name);
  }
  const auto load = [&] { for_each_state(place, [&](const HeldState& held) { load_held(archive, held); }); };
  if (place.store->shards() != nullptr) return load();
  place.store->write_whole(load);
}

}  // namespace lockstep::engine
