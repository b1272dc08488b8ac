// SPDX-License-Identifier: BSD-3-Clause
#include "average_state.hpp"

#include <lockstep/log/log.hpp>
#include <lockstep/parallel/tensor_collectives.hpp>

#include <torch/types.h>

#include <map>

#include "state_names.hpp"
#include "tensor_arrays.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;

/// Gives all ranks the same averages of buffers, by the same means as the buffers themselves.
void synchronise_averaged_buffers(Strategy& strategy) {
  strategy.average()->swap_buffers();
  strategy.model().synchronise_buffers();
  strategy.average()->swap_buffers();
}

/// By their names in an archive, on ranks that write. Collective where sharded.
std::map<std::string, at::Tensor> averages_of(Strategy& strategy, bool is_writer) {
  parallel::ParameterStore& store = strategy.model().parameters();
  std::map<std::string, at::Tensor> averages;
  for (std::size_t b = 0; b < store.blocks().size(); ++b) {
    if (!is_writer && store.shards() == nullptr) continue;
    const std::vector<at::Tensor> values =
        store.segments_of(b, strategy.average()->parameters(b), store.blocks()[b].dtype);
    for (std::size_t s = 0; s < values.size(); ++s) {
      averages.emplace(checkpoints::encode_name(store.blocks()[b].segments[s].name), values[s]);
    }
  }
  return averages;
}

/// Every array of `from`, in `to`: of those that are averaged their average, the others as a second name.
void capture_group(Archive& archive, const std::string& from, const std::string& to,
                   const std::map<std::string, at::Tensor>& averaged) {
  for (const std::string& name : archive.arrays_in(from)) {
    const std::string source = from + "/" + name;
    const std::string first = archive.first_path_of(source);
    const auto average = averaged.find(name);
    if (average != averaged.end()) {
      archive.put(to + "/" + name, array_of(average->second, name));
    } else if (!first.empty() && averaged.contains(first.substr(from.size() + 1))) {
      archive.link(to + "/" + name, to + first.substr(from.size()));  // a tied weight
    } else {
      archive.link(to + "/" + name, first.empty() ? source : first);
    }
  }
}

std::vector<optim::ModelAverage::NamedBuffer> stored_buffers(Strategy& strategy, const Archive& archive) {
  std::vector<optim::ModelAverage::NamedBuffer> buffers;
  if (!strategy.average()->options().averages_buffers) return buffers;
  for (const auto& item : strategy.model().model().named_buffers()) {
    const std::string at = path(kAverageBuffers, item.key());
    if (!item.value().is_floating_point() || !archive.has(at) || !fits(archive.array(at), item.value())) continue;
    buffers.push_back({item.key(), tensor_over(archive.array(at))
                                       .to(item.value().device(), /*non_blocking=*/false,
                                           /*copy=*/true)});
  }
  return buffers;
}

bool has_average(const Archive& archive) { return archive.has_attribute(kAverage, "updates"); }

}  // namespace

void for_each_average(Strategy& strategy, const std::function<void(const HeldState&)>& visit) {
  optim::ModelAverage* const average = strategy.average();
  if (average == nullptr) return;
  for_each_held(
      strategy.model().parameters(), kAverageParameters,
      [average](std::size_t block) { return average->parameters(block); }, visit);
}

void capture_average(Archive& archive, Strategy& strategy, bool is_writer) {
  optim::ModelAverage* const average = strategy.average();
  if (average == nullptr) return;
  if (!average->buffers().empty()) synchronise_averaged_buffers(strategy);
  strategy.model().parameters().write([] {});  // all have averaged their parts
  std::map<std::string, at::Tensor> averaged;
  if (average->has_begun()) averaged = averages_of(strategy, is_writer);
  if (!is_writer) return;
  const optim::AverageOptions& options = average->options();
  archive.set(kAverage, "kind", average->rule().name);
  archive.set(kAverage, "decay", options.decay);
  archive.set(kAverage, "gamma", options.gamma);
  archive.set(kAverage, "interval", options.interval);
  archive.set(kAverage, "updates", average->updates());
  capture_group(archive, kParameters, kAverageParameters, averaged);
  averaged.clear();
  for (const auto& [name, tensor] : average->buffers()) averaged.emplace(checkpoints::encode_name(name), tensor);
  capture_group(archive, kBuffers, kAverageBuffers, averaged);
}

void compare_average(Differences& differences, const Archive& archive, Strategy& strategy) {
  if (strategy.average() == nullptr || !has_average(archive)) return;
  const parallel::ParameterStore& store = strategy.model().parameters();
  for (std::size_t i = 0; i < store.size(); ++i) {
    const parallel::NamedParameter& parameter = store.parameter(i);
    differences.expect_array(path(kAverageParameters, parameter.name), parameter.tensor, kResetAverage);
  }
}

void restore_average(Strategy& strategy, const Archive& archive) {
  optim::ModelAverage* const average = strategy.average();
  if (average == nullptr) {
    if (has_average(archive)) {
      log::warning("the checkpoint's average of weights (ema.kind=" + archive.text(kAverage, "kind") +
                   ") is not carried on, since ema.kind is none");
    }
    return;
  }
  if (!has_average(archive)) {
    log::warning("the checkpoint holds no average of weights; that of ema.kind=" + average->rule().name +
                 " begins anew, with the weights of step " + std::to_string(archive.integer("/", "step")));
    return;
  }
  if (archive.text(kAverage, "kind") != average->rule().name) {
    log::info("ema.kind was " + archive.text(kAverage, "kind") + "; the average goes on by " + average->rule().name);
  }
  const std::int64_t updates = archive.integer(kAverage, "updates");
  average->resume_at(updates,
                     updates > 0 ? stored_buffers(strategy, archive) : std::vector<optim::ModelAverage::NamedBuffer>());
  if (updates == 0) return;  // it is what the weights are
  const torch::NoGradGuard no_grad;
  const auto load = [&](const HeldState& held) {
    const bool is_there = archive.has(held.at) && fits(archive.array(held.at), held.like);
    if (!is_there) {
      held.over(held.bytes.data()).copy_(held.over(held.values));
    } else if (archive.array(held.at).bytes.data() != held.bytes.data()) {  // else it was read to there
      held.over(held.bytes.data()).copy_(held.part_of(archive.array(held.at)));
    }
  };
  parallel::ParameterStore& store = strategy.model().parameters();
  if (store.shards() != nullptr) return for_each_average(strategy, load);
  store.write_whole([&] { for_each_average(strategy, load); });
}

}  // namespace lockstep::engine
