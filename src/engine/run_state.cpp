// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/run_state.hpp>
#include <lockstep/parallel/tensor_collectives.hpp>

#include <ATen/Context.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <set>

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using checkpoints::Array;

const std::string kParameters = "/model/params";
const std::string kBuffers = "/model/buffers";
const std::string kOptimizer = "/optim/0";

std::string path(const std::string& group, const std::string& name) {
  return group + "/" + checkpoints::encode_name(name);
}

// ---- tensors and arrays

/// The tensor's values in row-major order; borrows its memory where that is row-major already.
Array array_of(const at::Tensor& tensor, const std::string& what) {
  const auto values = std::make_shared<at::Tensor>(tensor.detach().cpu().contiguous());
  return {.dtype = parallel::dtype_of(*values, what),
          .shape = values->sizes().vec(),
          .bytes = parallel::bytes_of(*values),
          .owner = values};
}

at::Tensor tensor_over(const Array& array) {
  return at::from_blob(const_cast<std::byte*>(array.bytes.data()), array.shape,
                       at::TensorOptions().dtype(parallel::scalar_type_of(array.dtype)));
}

template <class T>
Array array_of(std::vector<T> values, DType dtype) {
  const auto kept = std::make_shared<std::vector<T>>(std::move(values));
  return {.dtype = dtype,
          .shape = {static_cast<std::int64_t>(kept->size())},
          .bytes = std::as_bytes(std::span(*kept)),
          .owner = kept};
}

// ---- the live run

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Every parameter once, trained or not, under its first name.
std::vector<NamedTensor> parameters_of(const models::Model& model) {
  std::vector<NamedTensor> parameters;
  for (const auto& item : model.named_parameters()) {
    const bool is_known = std::any_of(parameters.begin(), parameters.end(),
                                      [&item](const NamedTensor& p) { return p.tensor.is_same(item.value()); });
    if (!is_known) parameters.push_back({item.key(), item.value()});
  }
  return parameters;
}

std::vector<NamedTensor> buffers_of(const models::Model& model) {
  std::vector<NamedTensor> buffers;
  for (const auto& item : model.named_buffers()) buffers.push_back({item.key(), item.value()});
  return buffers;
}

// ---- capture

void capture_model(Archive& archive, const models::Model& model) {
  for (const auto& [name, tensor] : parameters_of(model)) archive.put(path(kParameters, name), array_of(tensor, name));
  for (const auto& [name, tensor] : buffers_of(model)) archive.put(path(kBuffers, name), array_of(tensor, name));
}

/// One state array of one parameter. Those who share the parameters share its memory.
at::Tensor state_view(optim::Optimizer& optimizer, const parallel::ParameterStore& store, std::size_t block,
                      std::size_t segment, std::size_t slot) {
  const optim::Block& of = store.blocks()[block];
  std::byte* const begin =
      optimizer.state(block, slot).data() + static_cast<std::size_t>(of.segments[segment].offset) * size_of(of.dtype);
  return parallel::view_of(begin, store.parameter(store.index_of(block, segment)).tensor, nullptr);
}

void capture_optimizer(Archive& archive, Strategy& strategy) {
  optim::Optimizer& optimizer = strategy.optimizer().optimizer();
  const parallel::ParameterStore& store = strategy.model().parameters();
  if (!strategy.world().is_root()) return;
  std::vector<std::int64_t> steps(store.size());
  for (std::size_t b = 0; b < store.blocks().size(); ++b) {
    const optim::Block& block = store.blocks()[b];
    for (std::size_t s = 0; s < block.segments.size(); ++s) {
      const optim::Segment& segment = block.segments[s];
      const std::size_t index = store.index_of(b, s);
      steps[index] = optimizer.steps(b)[s];
      for (std::size_t slot = 0; slot < optimizer.state_names().size(); ++slot) {
        archive.put(path(kOptimizer + "/state/" + optimizer.state_names()[slot], segment.name),
                    array_of(state_view(optimizer, store, b, s, slot), segment.name));
      }
    }
  }
  std::string names;
  for (std::size_t i = 0; i < store.size(); ++i) names += store.parameter(i).name + "\n";
  archive.set(kOptimizer, "type", optimizer.rule().name);
  archive.put(kOptimizer + "/param_names", checkpoints::text_array(names));
  archive.put(kOptimizer + "/step", array_of(std::move(steps), DType::int64));
  for (std::size_t g = 0; g < optimizer.groups().size(); ++g) {
    const optim::ParamGroup& group = optimizer.groups()[g];
    const std::string at = kOptimizer + "/groups/" + std::to_string(g);
    archive.set(at, "name", group.name);
    archive.set(at, "base_lr", group.base_lr);
    for (const auto& [option, value] : group.options) archive.set(at, option, value);
  }
}

void capture_progress(Archive& archive, const Trainer& trainer, std::uint64_t seed) {
  const Progress& at = trainer.progress();
  archive.set("/", "step", at.step);
  archive.set("/", "epoch", at.epoch);
  archive.set("/", "samples_seen", at.samples);
  archive.set("/sampler", "algorithm", std::string("keyed permutation"));
  archive.set("/sampler", "seed", static_cast<std::int64_t>(seed));
  archive.set("/sampler", "epoch", at.epoch);
  archive.set("/sampler", "samples_in_epoch", at.step_in_epoch * trainer.sampler().global_batch_size());
  archive.set("/sampler", "dataset_length", trainer.splits().train->size());
  archive.set("/sampler", "dataset_digest", static_cast<std::int64_t>(trainer.splits().train->digest()));
  archive.set("/sched/0", "last_step", at.step);
  archive.set("/sched/0", "factor", trainer.schedule()(std::max<std::int64_t>(0, at.step - 1)));
}

/// LibTorch's default generator of every rank. Lockstep's own draws never depend on it; a user's code may.
void capture_generators(Archive& archive, const mpi::Communicator& world) {
  const at::Tensor state = at::globalContext().defaultGenerator(at::kCPU).get_state();
  const auto bytes = static_cast<std::size_t>(state.numel());
  const auto all = std::make_shared<std::vector<std::byte>>(bytes * static_cast<std::size_t>(world.size()));
  world.all_gather(std::span<const std::byte>(parallel::bytes_of(state)), std::span<std::byte>(*all));
  if (!world.is_root()) return;
  archive.put("/rng/cpu", {.dtype = DType::uint8,
                           .shape = {world.size(), state.numel()},
                           .bytes = std::as_bytes(std::span(*all)),
                           .owner = all});
}

// ---- comparison and restore

/// Collects what does not fit, for one message that says it all.
class Differences {
 public:
  explicit Differences(const Archive& archive) : archive_(&archive) {}

  void add(const std::string& difference) {
    if (++count_ <= kShown) text_ += (text_.empty() ? "" : "; ") + difference;
  }

  void expect_array(const std::string& at, const at::Tensor& live) {
    if (!archive_->has(at)) return add(at + " is missing");
    const Array& saved = archive_->array(at);
    if (saved.shape != live.sizes().vec() || saved.dtype != parallel::dtype_of(live, at)) {
      add(at + " is " + describe(saved.dtype, saved.shape) + ", the run has " +
          describe(parallel::dtype_of(live, at), live.sizes().vec()));
    }
  }

  void expect_no_other(const std::string& group, const std::vector<NamedTensor>& live) {
    std::set<std::string> known;
    for (const NamedTensor& item : live) known.insert(checkpoints::encode_name(item.name));
    for (const std::string& name : archive_->arrays_in(group)) {
      if (!known.contains(name)) add(group + "/" + name + " is not in the run's model");
    }
  }

  void throw_if_any() const {
    if (count_ == 0) return;
    const std::string more = count_ > kShown ? "; and " + std::to_string(count_ - kShown) + " more" : "";
    throw CheckpointError(archive_->origin(), "does not fit this run: " + text_ + more +
                                                  "; resume with the configuration that wrote it, which it holds");
  }

 private:
  static constexpr int kShown = 8;

  static std::string describe(DType dtype, const std::vector<std::int64_t>& shape) {
    std::string text(name_of(dtype));
    text += " [";
    for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    return text + "]";
  }

  const Archive* archive_;
  std::string text_;
  int count_ = 0;
};

void compare_model(Differences& differences, const models::Model& model) {
  const auto parameters = parameters_of(model);
  const auto buffers = buffers_of(model);
  for (const auto& [name, tensor] : parameters) differences.expect_array(path(kParameters, name), tensor);
  for (const auto& [name, tensor] : buffers) differences.expect_array(path(kBuffers, name), tensor);
  differences.expect_no_other(kParameters, parameters);
  differences.expect_no_other(kBuffers, buffers);
}

void compare_optimizer(Differences& differences, const Archive& archive, Strategy& strategy) {
  const optim::Optimizer& optimizer = strategy.optimizer().optimizer();
  const parallel::ParameterStore& store = strategy.model().parameters();
  const std::string& type = archive.text(kOptimizer, "type");
  if (type != optimizer.rule().name) {
    return differences.add("its optimizer is " + type + ", the run's is " + optimizer.rule().name);
  }
  std::string names;
  for (std::size_t i = 0; i < store.size(); ++i) {
    names += store.parameter(i).name + "\n";
    for (const std::string& slot : optimizer.state_names()) {
      differences.expect_array(path(kOptimizer + "/state/" + slot, store.parameter(i).name), store.parameter(i).tensor);
    }
  }
  if (checkpoints::text_of(archive.array(kOptimizer + "/param_names")) != names) {
    differences.add("its optimizer holds other parameters, or in another order");
  }
  for (const std::string& slot : archive.groups_in(kOptimizer + "/state")) {
    const auto& known = optimizer.state_names();
    if (std::find(known.begin(), known.end(), slot) == known.end()) {
      differences.add("its optimizer keeps " + slot + ", the run's does not");
    }
  }
}

void compare_data(Differences& differences, const Archive& archive, const Trainer& trainer, std::uint64_t seed) {
  const data::Dataset& train = *trainer.splits().train;
  const std::int64_t length = archive.integer("/sampler", "dataset_length");
  if (length != train.size()) {
    differences.add("it was trained on " + std::to_string(length) + " samples, the run's data has " +
                    std::to_string(train.size()));
  } else if (archive.integer("/sampler", "dataset_digest") != static_cast<std::int64_t>(train.digest())) {
    differences.add("it was trained on other data of the same length");
  }
  if (archive.integer("/sampler", "seed") != static_cast<std::int64_t>(seed)) {
    differences.add("its run.seed is " + std::to_string(archive.integer("/sampler", "seed")));
  }
}

/// What would change the bits of a run whose bits should not depend on where it runs.
void compare_lanes(Differences& differences, const Archive& archive, const Strategy& strategy) {
  const std::int64_t lanes = archive.integer("/", "lanes");
  if (lanes != strategy.lanes()) {
    differences.add("its train.lanes is " + std::to_string(lanes) + ", the run's is " +
                    std::to_string(strategy.lanes()));
  } else if (lanes > 0 && archive.integer("/", "threads") != strategy.threads()) {
    differences.add("it was trained with run.threads = " + std::to_string(archive.integer("/", "threads")) +
                    ", this run has " + std::to_string(strategy.threads()));
  }
}

void load_model(Strategy& strategy, const Archive& archive) {
  const torch::NoGradGuard no_grad;
  const models::Model& model = strategy.model().model();
  strategy.model().parameters().write_whole([&] {
    for (const auto& [name, tensor] : parameters_of(model)) {
      tensor.copy_(tensor_over(archive.array(path(kParameters, name))));
    }
  });
  for (const auto& [name, tensor] : buffers_of(model)) tensor.copy_(tensor_over(archive.array(path(kBuffers, name))));
}

void load_optimizer(Strategy& strategy, const Archive& archive) {
  const torch::NoGradGuard no_grad;
  optim::Optimizer& optimizer = strategy.optimizer().optimizer();
  parallel::ParameterStore& store = strategy.model().parameters();
  const at::Tensor steps = tensor_over(archive.array(kOptimizer + "/step"));
  const auto for_each_segment = [&](const auto& visit) {
    for (std::size_t b = 0; b < store.blocks().size(); ++b) {
      for (std::size_t s = 0; s < store.blocks()[b].segments.size(); ++s) visit(b, s);
    }
  };
  for_each_segment([&](std::size_t b, std::size_t s) {
    optimizer.steps(b)[s] = steps.const_data_ptr<std::int64_t>()[store.index_of(b, s)];
  });
  store.write_whole([&] {
    for_each_segment([&](std::size_t b, std::size_t s) {
      const std::string& name = store.blocks()[b].segments[s].name;
      for (std::size_t slot = 0; slot < optimizer.state_names().size(); ++slot) {
        const std::string at = path(kOptimizer + "/state/" + optimizer.state_names()[slot], name);
        state_view(optimizer, store, b, s, slot).copy_(tensor_over(archive.array(at)));
      }
    });
  });
}

void load_generators(const Archive& archive, const mpi::Communicator& world) {
  const at::Tensor states = tensor_over(archive.array("/rng/cpu"));
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const bool fits = states.size(0) == world.size() && states.size(1) == generator.get_state().numel();
  if (fits) generator.set_state(states[world.rank()].clone());
}

}  // namespace

checkpoints::Archive capture(Trainer& trainer, const std::string& config_ini) {
  Strategy& strategy = trainer.strategy();
  strategy.model().synchronise_buffers();
  Archive archive;
  if (strategy.world().is_root()) {
    capture_progress(archive, trainer, strategy.seed());
    archive.set("/", "world_size", static_cast<std::int64_t>(strategy.world().size()));
    archive.set("/", "lanes", strategy.lanes());
    archive.set("/", "threads", static_cast<std::int64_t>(strategy.threads()));
    archive.put("/meta/config_ini", checkpoints::text_array(config_ini));
    capture_model(archive, strategy.model().model());
  }
  capture_optimizer(archive, strategy);
  capture_generators(archive, strategy.world());
  return archive;
}

void restore(Trainer& trainer, const checkpoints::Archive& archive) {
  Strategy& strategy = trainer.strategy();
  strategy.world().together([&] {
    Differences differences(archive);
    compare_model(differences, strategy.model().model());
    compare_optimizer(differences, archive, strategy);
    compare_data(differences, archive, trainer, strategy.seed());
    compare_lanes(differences, archive, strategy);
    differences.throw_if_any();
    trainer.resume_at(archive.integer("/", "step"), archive.integer("/sampler", "epoch"),
                      archive.integer("/sampler", "samples_in_epoch"), archive.integer("/", "samples_seen"));
  });
  load_model(strategy, archive);
  load_optimizer(strategy, archive);
  load_generators(archive, strategy.world());
}

void restore_model(Strategy& strategy, const checkpoints::Archive& archive) {
  strategy.world().together([&] {
    Differences differences(archive);
    compare_model(differences, strategy.model().model());
    differences.throw_if_any();
  });
  load_model(strategy, archive);
}

}  // namespace lockstep::engine
