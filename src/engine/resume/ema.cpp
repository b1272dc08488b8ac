// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/log/log.hpp>

#include <torch/types.h>

#include <map>

#include "engine/resume/components.hpp"
#include "engine/state/local_state.hpp"
#include "engine/state/paths.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using optim::ModelAverage;

bool has_average(const Archive& archive) { return archive.has_attribute(kAverage, "updates"); }

/// Captures one group of the averaged model. What is not averaged is stored once, for both models.
/// @param from      the same group of the trained model, in the archive
/// @param averaged  by encoded name
void capture_group(const StateWriter& writer, const std::string& from, const std::string& target,
                   const std::map<std::string, at::Tensor>& averaged) {
  const Archive& archive = writer.archive();
  for (const std::string& name : archive.arrays_in(from)) {
    const std::string source = from + "/" + name;
    const std::string first = archive.first_path_of(source);
    const auto average = averaged.find(name);
    if (average != averaged.end()) {
      writer.put(target + "/" + name, average->second);
    } else if (!first.empty() && averaged.contains(first.substr(from.size() + 1))) {
      writer.link(target + "/" + name, target + first.substr(from.size()));  // a tied weight
    } else {
      writer.link(target + "/" + name, first.empty() ? source : first);
    }
  }
}

class EmaState : public Stateful {
 public:
  explicit EmaState(Run& run)
      : wrapper_(run.model.wrapper.get()), store_(&wrapper_->store()), average_(run.updates.average.get()) {}

  std::string name() const override { return "average"; }
  bool is_restored(const RestoreOptions& options) const override { return !options.resets_average; }

  void capture(const StateWriter& writer) override {
    if (average_ == nullptr) return;
    if (!average_->buffers().empty()) synchronize_averaged_buffers();
    store_->write([] {});  // all have averaged their parts
    std::map<std::string, at::Tensor> parameters;
    if (average_->has_begun()) parameters = averages(writer.is_writer());
    capture_settings(writer);
    capture_group(writer, kParameters, kAverageParameters, parameters);
    std::map<std::string, at::Tensor> buffers;
    for (const auto& [name, tensor] : average_->buffers()) buffers.emplace(checkpoints::encode_name(name), tensor);
    capture_group(writer, kBuffers, kAverageBuffers, buffers);
  }

  void compare(const Archive& archive, const RestoreOptions& options, CompatibilityReport& report) override {
    if (average_ == nullptr || !has_average(archive) || options.is_partial) return;
    const bool is_of_model = archive.integer(kAverage, "updates") == 0;  // then it has the model's types, too
    for_each_averaged([&](std::size_t b, std::size_t s) {
      const parallel::NamedParameter& parameter = store_->parameter(store_->index_of(b, s));
      const DType dtype = is_of_model ? store_->blocks()[b].dtype : average_->dtype(b);
      report.expect_array(
          MismatchKind::average, path(kAverageParameters, parameter.name),
          at::empty(parameter.tensor.sizes(), at::device(at::kMeta).dtype(parallel::scalar_type_of(dtype))),
          {Remedy::reset_average});
    });
  }

  /// Resumes the stored average. Where that of a parameter does not fit, the average starts with the parameter. An
  /// average without updates is stored as the weights.
  void restore(const Archive& archive, const RestoreOptions&) override {
    log_changes(archive);
    if (average_ == nullptr || !has_average(archive)) return;
    const std::int64_t updates = archive.integer(kAverage, "updates");
    average_->resume_at(updates, updates > 0 ? stored_buffers(archive) : std::vector<ModelAverage::NamedBuffer>());
    const torch::NoGradGuard no_grad;
    if (store_->shards() != nullptr) return load_parameters(archive);
    store_->write_whole([&] { load_parameters(archive); });
  }

  void visit_arrays(const std::function<void(const LocalState&)>& visit) override {
    if (average_ == nullptr) return;
    for_each_parameter([&](const LocalState& average, const LocalState&) { visit(average); });
  }

 private:
  /// Gives all ranks the same averages of buffers, as it is done for the buffers themselves.
  void synchronize_averaged_buffers() const {
    average_->swap_buffers();
    wrapper_->synchronize_buffers();
    average_->swap_buffers();
  }

  /// Those of parameters, by their encoded names, on ranks that write. Collective where sharded.
  std::map<std::string, at::Tensor> averages(bool is_writer) const {
    std::map<std::string, at::Tensor> averages;
    for (std::size_t b = 0; b < store_->blocks().size(); ++b) {
      if (!is_writer && store_->shards() == nullptr) continue;
      const std::vector<at::Tensor> values = store_->segments_of(b, average_->parameters(b), average_->dtype(b));
      for (std::size_t s = 0; s < values.size(); ++s) {
        if (!average_->is_averaged(b, s)) continue;
        averages.emplace(checkpoints::encode_name(store_->blocks()[b].segments[s].name), values[s]);
      }
    }
    return averages;
  }

  void capture_settings(const StateWriter& writer) const {
    const optim::AverageOptions& options = average_->options();
    writer.set(kAverage, "kind", average_->rule().name);
    writer.set(kAverage, "decay", options.decay);
    writer.set(kAverage, "gamma", options.gamma);
    writer.set(kAverage, "interval", options.interval);
    writer.set(kAverage, "updates", average_->updates());
  }

  void log_changes(const Archive& archive) const {
    if (average_ == nullptr) {
      if (!has_average(archive)) return;
      log::warning("the average of the weights in the checkpoint (ema.kind=" + archive.text(kAverage, "kind") +
                   ") is discarded, because ema.kind is none");
    } else if (!has_average(archive)) {
      log::warning(
          "the checkpoint contains no average of the weights; the average of ema.kind=" + average_->rule().name +
          " starts from the weights of step " + std::to_string(archive.integer("/", "step")));
    } else if (archive.text(kAverage, "kind") != average_->rule().name) {
      log::info("ema.kind was " + archive.text(kAverage, "kind") + "; the average continues with " +
                average_->rule().name);
    }
  }

  std::vector<ModelAverage::NamedBuffer> stored_buffers(const Archive& archive) const {
    std::vector<ModelAverage::NamedBuffer> buffers;
    if (!average_->options().averages_buffers) return buffers;
    for (const auto& item : wrapper_->model().named_buffers()) {
      const auto* const saved = fitting(archive, path(kAverageBuffers, item.key()), item.value());
      if (!item.value().is_floating_point() || saved == nullptr) continue;
      buffers.push_back(
          {item.key(), tensor_over(*saved).to(item.value().device(), /*non_blocking=*/false, /*copy=*/true)});
    }
    return buffers;
  }

  void load_parameters(const Archive& archive) const {
    for_each_parameter([&](const LocalState& average, const LocalState& parameter) {
      if (fitting(archive, average.path, average.tensor) != nullptr) {
        load(archive, average);
      } else {
        elements_of(average).copy_(elements_of(parameter));
      }
    });
  }

  /// Visits what this rank holds: visit(average, the same elements of the parameter).
  template <class Visit>
  void for_each_parameter(const Visit& visit) const {
    for_each_averaged([&](std::size_t b, std::size_t s) {
      const auto average = local_state(*store_, kAverageParameters, b, s, average_->parameters(b), average_->dtype(b));
      const auto parameter =
          local_state(*store_, kParameters, b, s, store_->bytes_of_block(b), store_->blocks()[b].dtype);
      if (average) visit(*average, *parameter);
    });
  }

  template <class Visit>
  void for_each_averaged(const Visit& visit) const {
    for (std::size_t b = 0; b < store_->blocks().size(); ++b) {
      for (std::size_t s = 0; s < store_->blocks()[b].segments.size(); ++s) {
        if (average_->is_averaged(b, s)) visit(b, s);
      }
    }
  }

  parallel::DistributedDataParallel* wrapper_;
  parallel::ParameterStore* store_;
  ModelAverage* average_;  // null = none
};

}  // namespace

std::shared_ptr<Stateful> ema_state(Run& run) { return std::make_shared<EmaState>(run); }

}  // namespace lockstep::engine
