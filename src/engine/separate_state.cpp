// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/separate_state.hpp>
#include <lockstep/parallel/tensor_collectives.hpp>

#include <torch/types.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "differences.hpp"
#include "scaler_state.hpp"
#include "state_names.hpp"
#include "tensor_arrays.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using parallel::ParameterStore;

/// One optimizer, and where it lies in an archive.
struct Place {
  std::string name;
  optim::OptimWrapper* wrapper;
  ParameterStore* store;

  std::string group() const { return "/optim/" + name; }
  std::string scaler() const { return kScaler + "/" + name; }
};

std::vector<Place> places_of(parallel::SeparateDistributedDataParallel& wrapper, optim::OptimWrapperDict& optimizers) {
  std::vector<Place> places;
  for (auto& [name, optimizer] : optimizers) {
    places.push_back({name, &optimizer, &wrapper.child(name).parameters()});
  }
  return places;
}

/// Calls visit(path in the archive, live tensor) for every parameter, trained or not, and every buffer.
template <class Visit>
void visit_model(const models::Model& model, const Visit& visit) {
  for (const auto& item : model.named_parameters()) visit(path(kParameters, item.key()), item.value());
  for (const auto& item : model.named_buffers()) visit(path(kBuffers, item.key()), item.value());
}

/// The same for every state array of an optimizer; those who share the parameters share its memory.
template <class Visit>
void visit_states(const Place& place, const Visit& visit) {
  optim::Optimizer& optimizer = place.wrapper->optimizer();
  for (std::size_t b = 0; b < place.store->blocks().size(); ++b) {
    const optim::Block& block = place.store->blocks()[b];
    for (std::size_t s = 0; s < block.segments.size(); ++s) {
      const at::Tensor& parameter = place.store->parameter(place.store->index_of(b, s)).tensor;
      const auto offset = static_cast<std::size_t>(block.segments[s].offset) * size_of(block.dtype);
      for (std::size_t slot = 0; slot < optimizer.state_names().size(); ++slot) {
        visit(path(place.group() + "/state/" + optimizer.state_names()[slot], block.segments[s].name),
              parallel::view_of(optimizer.state(b, slot).data() + offset, parameter, nullptr));
      }
    }
  }
}

std::string names_in(const ParameterStore& store) {
  std::string names;
  for (std::size_t i = 0; i < store.size(); ++i) names += store.parameter(i).name + "\n";
  return names;
}

/// Calls visit(number of the parameter, its count of updates).
template <class Visit>
void visit_steps(const Place& place, const Visit& visit) {
  for (std::size_t b = 0; b < place.store->blocks().size(); ++b) {
    const std::span<std::int64_t> steps = place.wrapper->optimizer().steps(b);
    for (std::size_t s = 0; s < steps.size(); ++s) visit(place.store->index_of(b, s), steps[s]);
  }
}

void capture_optimizer(Archive& archive, const Place& place) {
  const optim::Optimizer& optimizer = place.wrapper->optimizer();
  std::vector<std::int64_t> steps(place.store->size());
  visit_steps(place, [&steps](std::size_t i, std::int64_t count) { steps[i] = count; });
  archive.set(place.group(), "type", optimizer.rule().name);
  archive.put(place.group() + "/param_names", checkpoints::text_array(names_in(*place.store)));
  archive.put(place.group() + "/step", array_of(std::move(steps), DType::int64));
  for (std::size_t g = 0; g < optimizer.groups().size(); ++g) {
    const optim::ParamGroup& group = optimizer.groups()[g];
    const std::string at = place.group() + "/groups/" + std::to_string(g);
    archive.set(at, "name", group.name);
    archive.set(at, "base_lr", group.base_lr);
    for (const auto& [option, value] : group.options) archive.set(at, option, value);
  }
  visit_states(place, [&](const std::string& at, const at::Tensor& live) { archive.put(at, array_of(live, at)); });
  capture_scaler(archive, place.scaler(), *place.wrapper);
}

void compare_optimizer(Differences& differences, const Archive& archive, const Place& place) {
  if (!archive.has_attribute(place.group(), "type")) {
    return differences.add("it has no optimizer of the name " + place.name);
  }
  const optim::Optimizer& optimizer = place.wrapper->optimizer();
  const std::string& type = archive.text(place.group(), "type");
  if (type != optimizer.rule().name) {
    return differences.add("its optimizer " + place.name + " is " + type + ", the run's is " + optimizer.rule().name);
  }
  if (checkpoints::text_of(archive.array(place.group() + "/param_names")) != names_in(*place.store)) {
    return differences.add("its optimizer " + place.name + " holds other parameters, or in another order");
  }
  visit_states(place, [&](const std::string& at, const at::Tensor& live) { differences.expect_array(at, live, ""); });
  const checkpoints::Array& steps = archive.array(place.group() + "/step");
  const std::vector<std::int64_t> count = {static_cast<std::int64_t>(place.store->size())};
  if (steps.dtype == DType::int64 && steps.shape == count) return;
  differences.add("its optimizer " + place.name + " has not one count of updates for each of its parameters");
}

void compare(const Archive& archive, const models::Model& model, const std::vector<Place>& places) {
  Differences differences(archive);
  std::set<std::string> unknown;
  for (const std::string& group : {kParameters, kBuffers}) {
    for (const std::string& name : archive.arrays_in(group)) unknown.insert(group + "/" + name);
  }
  visit_model(model, [&](const std::string& at, const at::Tensor& live) {
    unknown.erase(at);
    differences.expect_array(at, live, "");
  });
  for (const std::string& at : unknown) differences.add(at + " is not in the run's model");
  std::set<std::string> names;
  for (const Place& place : places) {
    names.insert(place.name);
    compare_optimizer(differences, archive, place);
  }
  for (const std::string& name : archive.groups_in("/optim")) {
    if (!names.contains(name)) differences.add("the run has no optimizer of the name " + name);
  }
  differences.throw_if_any();
}

void load_steps(const Archive& archive, const Place& place) {
  const at::Tensor stored = tensor_over(archive.array(place.group() + "/step"));
  const auto* const counts = stored.const_data_ptr<std::int64_t>();
  visit_steps(place, [counts](std::size_t i, std::int64_t& count) { count = counts[i]; });
}

}  // namespace

Archive capture(parallel::SeparateDistributedDataParallel& wrapper, optim::OptimWrapperDict& optimizers,
                std::int64_t step, bool is_writer) {
  for (const std::string& name : wrapper.names()) wrapper.child(name).synchronise_buffers();
  Archive archive;
  if (!is_writer) return archive;
  archive.set("/", "step", step);
  visit_model(wrapper.model(),
              [&](const std::string& at, const at::Tensor& live) { archive.put(at, array_of(live, at)); });
  for (const Place& place : places_of(wrapper, optimizers)) capture_optimizer(archive, place);
  return archive;
}

std::int64_t restore(parallel::SeparateDistributedDataParallel& wrapper, optim::OptimWrapperDict& optimizers,
                     const Archive& archive) {
  const torch::NoGradGuard no_grad;
  const std::vector<Place> places = places_of(wrapper, optimizers);
  wrapper.world().together([&] { compare(archive, wrapper.model(), places); });
  const auto load = [&archive](const std::string& at, const at::Tensor& live) {
    live.copy_(tensor_over(archive.array(at)));
  };
  std::set<const void*> trained;
  for (const std::string& name : wrapper.names()) {
    ParameterStore& store = wrapper.child(name).parameters();
    store.write_whole([&] {
      for (std::size_t i = 0; i < store.size(); ++i) {
        load(path(kParameters, store.parameter(i).name), store.parameter(i).tensor);
      }
    });
    for (std::size_t i = 0; i < store.size(); ++i) trained.insert(store.parameter(i).tensor.unsafeGetTensorImpl());
  }
  for (const Place& place : places) {
    place.store->write_whole([&] { visit_states(place, load); });
    load_steps(archive, place);
    place.wrapper->reset();
  }
  visit_model(wrapper.model(), [&](const std::string& at, const at::Tensor& live) {
    if (!trained.contains(live.unsafeGetTensorImpl())) load(at, live);
  });
  wrapper.world().together([&] {
    for (const Place& place : places) restore_scaler(*place.wrapper, archive, place.scaler());
  });
  return archive.integer("/", "step");
}

}  // namespace lockstep::engine
