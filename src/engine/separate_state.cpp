// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/separate_state.hpp>
#include <lockstep/parallel/tensor_collectives.hpp>

#include <torch/types.h>

#include <set>
#include <string>
#include <vector>

#include "differences.hpp"
#include "optimizer_state.hpp"
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
  OptimizerPlace optimizer;

  std::string scaler() const { return kScaler + "/" + name; }
};

std::vector<Place> places_of(parallel::SeparateDistributedDataParallel& wrapper, optim::OptimWrapperDict& optimizers) {
  std::vector<Place> places;
  for (auto& [name, optimizer] : optimizers) {
    places.push_back({.name = name,
                      .wrapper = &optimizer,
                      .optimizer = {.group = "/optim/" + name,
                                    .optimizer = &optimizer.optimizer(),
                                    .store = &wrapper.child(name).parameters(),
                                    .title = "its optimizer " + name}});
  }
  return places;
}

/// Calls visit(path in the archive, live tensor) for every parameter, trained or not, and every buffer.
template <class Visit>
void visit_model(const models::Model& model, const Visit& visit) {
  for (const auto& item : model.named_parameters()) visit(path(kParameters, item.key()), item.value());
  for (const auto& item : model.named_buffers()) visit(path(kBuffers, item.key()), item.value());
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
    if (!archive.has_attribute(place.optimizer.group, "type")) {
      differences.add("it has no optimizer of the name " + place.name);
      continue;
    }
    compare_steps(differences, archive, place.optimizer);
    compare_optimizer(differences, archive, place.optimizer);
  }
  for (const std::string& name : archive.groups_in("/optim")) {
    if (!names.contains(name)) differences.add("the run has no optimizer of the name " + name);
  }
  differences.throw_if_any();
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
  for (const Place& place : places_of(wrapper, optimizers)) {
    capture_optimizer(archive, place.optimizer, is_writer);
    capture_scaler(archive, place.scaler(), *place.wrapper);
  }
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
    load_optimizer(archive, place.optimizer);
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
