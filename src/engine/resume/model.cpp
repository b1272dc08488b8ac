// SPDX-License-Identifier: BSD-3-Clause
#include <torch/types.h>

#include <algorithm>
#include <set>

#include "engine/resume/components.hpp"
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
  explicit ModelState(parallel::DistributedDataParallel& wrapper)
      : model_(&wrapper.model()), wrapper_(&wrapper), store_(&wrapper.store()) {}

  std::string name() const override { return "model"; }

  void capture(const StateWriter& writer) override {
    wrapper_->synchronize_buffers();
    const DistinctParameters parameters = distinct_parameters(*model_);
    const bool is_divided = store_->shards() != nullptr;
    const std::set<const void*> divided = is_divided ? stored() : std::set<const void*>();
    for (const auto& [name, tensor] : parameters.first) {
      if (!divided.contains(tensor.unsafeGetTensorImpl())) writer.put(path(kParameters, name), tensor);
    }
    for (std::size_t b = 0; is_divided && b < store_->blocks().size(); ++b) {
      capture_block(writer, kParameters, *store_, b, store_->bytes_of_block(b), store_->blocks()[b].dtype);
    }
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
    write_parameters(*store_, distinct_parameters(*model_).first,
                     [&](const NamedTensor& parameter) { take(kParameters, parameter); });
    for (const NamedTensor& buffer : buffers_of(*model_)) take(kBuffers, buffer);
  }

  Reproducibility reproducibility(const Archive&, const RestoreOptions& options) override {
    return options.is_partial ? incomplete_state() : Reproducibility();
  }

  void visit_arrays(const std::function<void(const LocalState&)>& visit) override {
    const std::set<const void*> shared = stored();
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
  /// The parameters in the store.
  std::set<const void*> stored() const {
    std::set<const void*> parameters;
    for (std::size_t i = 0; i < store_->size(); ++i) {
      parameters.insert(store_->parameter(i).tensor.unsafeGetTensorImpl());
    }
    return parameters;
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
  parallel::DistributedDataParallel* wrapper_;
  parallel::ParameterStore* store_;
};

}  // namespace

std::shared_ptr<Stateful> model_state(parallel::DistributedDataParallel& wrapper) {
  return std::make_shared<ModelState>(wrapper);
}

}  // namespace lockstep::engine
