// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/log/log.hpp>

#include <torch/types.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "core/text/text_stream.hpp"
#include "engine/resume/components.hpp"
#include "engine/state/device_copies.hpp"
#include "engine/state/paths.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using checkpoints::Array;

const std::string kPerRank = kCommHook + "/ranks";
const std::string kCommon = kCommHook + "/common";
const std::string kIntegers = kCommHook + "/integers";

using Tensors = std::map<std::string, at::Tensor>;

/// Names, types and shapes, for a comparison between ranks.
std::string description_of(const Tensors& tensors) {
  TextWriter text;
  for (const auto& [name, tensor] : tensors) text << name << ' ' << tensor.dtype() << ' ' << tensor.sizes() << '\n';
  return text.str();
}

/// The values of this rank, in host memory.
std::map<std::string, Array> arrays_of(const Tensors& tensors) {
  DeviceCopies copies;
  copies.begin();
  std::map<std::string, Array> arrays;
  for (const auto& [name, tensor] : tensors) {
    arrays[name] = tensor.is_cpu() ? array_of(tensor, name) : copies.queue(tensor, name);
  }
  if (const auto arrival = copies.arrival()) arrival();
  return arrays;
}

/// [ranks, ...]: every rank's array of one name.
Array gathered(const Array& mine, const mpi::Communicator& world) {
  const auto all = std::make_shared<std::vector<std::byte>>(mine.bytes.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(mine.bytes, std::span<std::byte>(*all));
  Array result{.dtype = mine.dtype, .shape = {world.size()}, .bytes = *all, .owner = all};
  result.shape.insert(result.shape.end(), mine.shape.begin(), mine.shape.end());
  return result;
}

class CommHookState : public Stateful {
 public:
  explicit CommHookState(Run& run)
      : type_(run.model.comm_hook),
        world_(&run.resources.world),
        device_(run.resources.device),
        memory_(run.model.wrapper->hook_memory()) {}

  std::string name() const override { return "communication hook"; }
  bool is_restored(const RestoreOptions& options) const override { return !options.is_partial; }

  void capture(const StateWriter& writer) override {
    writer.set(kCommHook, "type", type_);
    if (memory_ == nullptr) return;
    const parallel::HookState state = memory_->state();
    require_equal_descriptions(state.tensors);
    for (const auto& [name, array] : arrays_of(state.tensors)) {
      writer.put(path(kPerRank, name), gathered(array, *world_));
    }
    for (const auto& [name, tensor] : state.common) writer.put(path(kCommon, name), tensor);
    for (const auto& [name, value] : state.integers) writer.set(kIntegers, name, value);
  }

  void restore(const Archive& archive, const RestoreOptions&) override {
    if (memory_ == nullptr) return;
    if (!has_same_type(archive)) {
      log::info("ddp.comm_hook=" + type_ + " starts from its initial state: the checkpoint contains no state of it");
      return;
    }
    if (!has_as_many_ranks(archive) && !archive.arrays_in(kPerRank).empty()) {
      log::info("the state per rank of ddp.comm_hook=" + type_ +
                " starts from its initial value: the checkpoint was written by " +
                std::to_string(archive.integer("/", "world_size")) + " of them");
    }
    world_->all_or_throw([&] { memory_->load_state(stored_state(archive)); });
  }

  Reproducibility reproducibility(const Archive& archive, const RestoreOptions&) override {
    if (world_->size() == 1 && archive.integer("/", "world_size") == 1) return {};  // nothing is sent
    const bool is_known = archive.has_attribute(kCommHook, "type");
    const bool is_changed = is_known ? !has_same_type(archive) : memory_ != nullptr;
    if (!is_changed) return {};
    return {Reproducibility::Degree::statistical,
            "ddp.comm_hook is " + type_ + " and was " +
                (is_known ? archive.text(kCommHook, "type") : "not in the checkpoint")};
  }

 private:
  void require_equal_descriptions(const Tensors& tensors) const {
    const std::vector<std::string> all = world_->all_gather(description_of(tensors));
    if (std::adjacent_find(all.begin(), all.end(), std::not_equal_to<>()) == all.end()) return;
    throw std::logic_error("the states of the communication hook have different names or shapes on different ranks");
  }

  bool has_same_type(const Archive& archive) const {
    return archive.has_attribute(kCommHook, "type") && archive.text(kCommHook, "type") == type_;
  }

  bool has_as_many_ranks(const Archive& archive) const { return archive.integer("/", "world_size") == world_->size(); }

  /// The state on the device Without what each rank kept for itself, where the number of ranks has changed.
  parallel::HookState stored_state(const Archive& archive) const {
    parallel::HookState state;
    for (const auto& [name, value] : archive.attributes_of(kIntegers)) {
      state.integers[name] = archive.integer(kIntegers, name);
    }
    const auto copy_of = [this](const at::Tensor& stored) { return stored.clone().to(device_); };
    for (const std::string& name : archive.arrays_in(kCommon)) {
      state.common[checkpoints::decode_name(name)] = copy_of(tensor_over(archive.array(kCommon + "/" + name)));
    }
    if (!has_as_many_ranks(archive)) return state;
    for (const std::string& name : archive.arrays_in(kPerRank)) {
      const at::Tensor all = tensor_over(archive.array(kPerRank + "/" + name));
      state.tensors[checkpoints::decode_name(name)] = copy_of(all[world_->rank()]);
    }
    return state;
  }

  std::string type_;  // ddp.comm_hook
  const mpi::Communicator* world_;
  at::Device device_;
  parallel::HookMemory* memory_;  // null = the hook learns nothing
};

}  // namespace

std::shared_ptr<Stateful> comm_hook_state(Run& run) { return std::make_shared<CommHookState>(run); }

}  // namespace lockstep::engine
