// SPDX-License-Identifier: BSD-3-Clause
#include <torch/types.h>

#include <algorithm>
#include <set>

#include "engine/state/components.hpp"
#include "engine/state/local_state.hpp"
#include "engine/state/model_tensors.hpp"
#include "engine/state/paths.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;

/// A name of a tied parameter, and the first name of the same parameter.
struct TiedName {
  std::string name;
  std::string first;
};

/// Every parameter once, under its first name, and the other names.
struct DistinctParameters {
  std::vector<NamedTensor> first;
  std::vector<TiedName> tied = {};
};

DistinctParameters distinct_parameters(const models::Model& model) {
  DistinctParameters distinct;
  for (const NamedTensor& parameter : parameters_of(model)) {
    const auto known = std::find_if(distinct.first.begin(), distinct.first.end(),
                                    [&](const NamedTensor& other) { return other.tensor.is_same(parameter.tensor); });
    if (known == distinct.first.end()) {
      distinct.first.push_back(parameter);
    } else {
      distinct.tied.push_back({parameter.name, known->name});
    }
  }
  return distinct;
}

class ModelState : public Stateful {
 public:
  ModelState(models::Model& model, std::vector<parallel::DistributedDataParallel*> wrappers)
      : model_(&model), wrappers_(std::move(wrappers)) {}

  std::string name() const override { return "model"; }

  void capture(const StateWriter& writer) override {
    for (parallel::DistributedDataParallel* const wrapper : wrappers_) wrapper->synchronize_buffers();
    const DistinctParameters parameters = distinct_parameters(*model_);
    const std::set<const void*> divided = stored([](const auto& store) { return store.shards() != nullptr; });
    for (const auto& [name, tensor] : parameters.first) {
      if (!divided.contains(tensor.unsafeGetTensorImpl())) writer.put(path(kParameters, name), tensor);
    }
    for (parallel::ParameterStore* const store : stores()) capture_divided(writer, *store);
    for (const auto& [name, first] : parameters.tied) writer.link(path(kParameters, name), path(kParameters, first));
    for (const auto& [name, tensor] : buffers_of(*model_)) writer.put(path(kBuffers, name), tensor);
  }

  void compare(const Archive& archive, const RestoreOptions&, CompatibilityReport& report) override {
    const DistinctParameters parameters = distinct_parameters(*model_);
    compare_group(archive, kParameters, parameters.first, parameters.tied, report);
    compare_group(archive, kBuffers, buffers_of(*model_), {}, report);
  }

  /// Takes what fits; what does not was either refused before or is to be left as it is.
  void restore(const Archive& archive, const RestoreOptions&) override {
    const torch::NoGradGuard no_grad;
    const auto take = [&archive](const std::string& group, const NamedTensor& live) {
      const auto* const saved = fitting(archive, path(group, live.name), live.tensor);
      if (saved != nullptr) copy_to(live.tensor, *saved);
    };
    write_parameters(stores(), distinct_parameters(*model_).first,
                     [&](const NamedTensor& parameter) { take(kParameters, parameter); });
    for (const NamedTensor& buffer : buffers_of(*model_)) take(kBuffers, buffer);
  }

  Reproducibility reproducibility(const Archive&, const RestoreOptions& options) override {
    return options.is_partial ? incomplete_state() : Reproducibility();
  }

  void visit_arrays(const std::function<void(const LocalState&)>& visit) override {
    const std::set<const void*> shared = stored([](const auto&) { return true; });
    for (const auto& [name, tensor] : distinct_parameters(*model_).first) {
      visit({.path = path(kParameters, name),
             .tensor = tensor,
             .is_own = !shared.contains(tensor.unsafeGetTensorImpl())});
    }
    for (const auto& [name, tensor] : buffers_of(*model_)) {
      visit({.path = path(kBuffers, name), .tensor = tensor, .is_own = true});
    }
  }

 private:
  std::vector<parallel::ParameterStore*> stores() const {
    std::vector<parallel::ParameterStore*> stores;
    for (parallel::DistributedDataParallel* const wrapper : wrappers_) stores.push_back(&wrapper->store());
    return stores;
  }

  /// The parameters in those stores for which `counts` returns true.
  std::set<const void*> stored(const std::function<bool(const parallel::ParameterStore&)>& counts) const {
    std::set<const void*> parameters;
    for (const parallel::ParameterStore* const store : stores()) {
      for (std::size_t i = 0; counts(*store) && i < store->size(); ++i) {
        parameters.insert(store->parameter(i).tensor.unsafeGetTensorImpl());
      }
    }
    return parameters;
  }

  static void capture_divided(const StateWriter& writer, parallel::ParameterStore& store) {
    for (std::size_t b = 0; store.shards() != nullptr && b < store.blocks().size(); ++b) {
      capture_block(writer, kParameters, store, b, store.bytes_of_block(b), store.blocks()[b].dtype);
    }
  }

  static void compare_group(const Archive& archive, const std::string& group, const std::vector<NamedTensor>& live,
                            const std::vector<TiedName>& tied, CompatibilityReport& report) {
    std::set<std::string> known;
    for (const NamedTensor& each : live) known.insert(checkpoints::encode_name(each.name));
    for (const TiedName& each : tied) known.insert(checkpoints::encode_name(each.name));
    std::vector<std::string> unused = archive.arrays_in(group);
    std::erase_if(unused, [&known](const std::string& name) { return known.contains(name); });
    for (const auto& [name, tensor] : live) {
      report.expect_array(MismatchKind::model, path(group, name), tensor, {Remedy::partial_model}, unused);
    }
    for (const std::string& name : unused) {
      report.add({.kind = MismatchKind::model,
                  .text = group + "/" + name + " is not in the model of the run",
                  .remedies = {Remedy::partial_model}});
    }
  }

  models::Model* model_;
  std::vector<parallel::DistributedDataParallel*> wrappers_;
};

}  // namespace

std::shared_ptr<Stateful> model_state(models::Model& model, std::vector<parallel::DistributedDataParallel*> wrappers) {
  return std::make_shared<ModelState>(model, std::move(wrappers));
}

}  // namespace lockstep::engine
