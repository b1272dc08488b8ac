// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/log/log.hpp>

#include <torch/types.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "core/text/text_stream.hpp"
#include "engine/resume/components.hpp"
#include "engine/settings/agreed.hpp"
#include "engine/state/device_copies.hpp"
#include "engine/state/paths.hpp"
#include "mpi/shared/device_collectives.hpp"
#include "parallel/store/parameter_store.hpp"
#include "parallel/store/reducer.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using checkpoints::Array;

const std::string kPerRank = kCommHook + "/ranks";
const std::string kCommon = kCommHook + "/common";
const std::string kIntegers = kCommHook + "/integers";

using NamedTensors = std::map<std::string, at::Tensor>;

/// Names, types and shapes, for a comparison between ranks.
std::string description_of(const NamedTensors& tensors) {
  TextWriter text;
  for (const auto& [name, tensor] : tensors) text << name << ' ' << tensor.dtype() << ' ' << tensor.sizes() << '\n';
  return text.str();
}

/// The values of this rank, in host memory.
std::map<std::string, Array> arrays_of(const NamedTensors& tensors) {
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
                std::to_string(archive.integer("/", "world_size")) + " ranks");
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
  void require_equal_descriptions(const NamedTensors& tensors) const {
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

std::string comma_separated(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

bool has_buckets(const Archive& archive) { return archive.has(kBuckets + "/counts"); }

class BucketsState : public Stateful {
 public:
  explicit BucketsState(Run& run) : world_(&run.resources.world), wrapper_(run.model.wrapper.get()) {}

  std::string name() const override { return "buckets"; }
  bool is_restored(const RestoreOptions& options) const override { return !options.is_partial; }

  void capture(const StateWriter& writer) override {
    if (!wrapper_->has_buckets()) return;
    const StoredLayout layout = agreed_layout();
    if (layout.counts.empty()) return;  // nothing is known before the first step
    writer.set(kBuckets, "bucket_bytes", comma_separated(limits().bucket_bytes));
    writer.set(kBuckets, "last_bucket_bytes", limits().last_bucket_bytes);
    writer.put(kBuckets + "/param_names", checkpoints::text_array(layout.names));
    writer.put(kBuckets + "/counts", array_of(layout.counts, DType::int64));
  }

  void restore(const Archive& archive, const RestoreOptions&) override {
    if (!wrapper_->has_buckets() || !has_buckets(archive)) return;
    if (!has_same_limits(archive)) {
      log::info("buckets are laid out again: the checkpoint used buckets of " + archive.text(kBuckets, "bucket_bytes") +
                " bytes (ddp.bucket_mb) and a last one of " +
                std::to_string(archive.integer(kBuckets, "last_bucket_bytes")) + " bytes (ddp.last_bucket_mb)");
      return;
    }
    const parallel::BucketLayout layout = agreed(*world_, [&] { return layout_in(archive); });
    auto* const adaptive = parallel::ability_of<parallel::AdaptiveReducer>(wrapper_->reducer());
    if (adaptive != nullptr) adaptive->restore_layout(layout);
  }

  /// Sums over ranks are in rank order, whatever else is in the same bucket: layouts change no bit. Not so on a GPU,
  /// where NCCL divides a bucket, and with a hook that takes a bucket for a matrix.
  Reproducibility reproducibility(const Archive& archive, const RestoreOptions&) override {
    if (world_->size() == 1 && archive.integer("/", "world_size") == 1) return {};  // nothing is sent
    const bool depends_on_buckets =
        wrapper_->hook_memory() != nullptr || mpi::has_device_buckets(wrapper_->collectives());
    if (!depends_on_buckets || !has_buckets(archive) || has_same_limits(archive)) return {};
    return {Reproducibility::Degree::order,
            "it was written with different values of ddp.bucket_mb or ddp.last_bucket_mb"};
  }

 private:
  /// Bucket by bucket: the names of its parameters, one per line, and how many there are.
  struct StoredLayout {
    std::string names;
    std::vector<std::int64_t> counts = {};
  };

  const parallel::BucketLimits& limits() const { return wrapper_->options().reducer.limits; }

  /// Until buckets are built by it, only rank 0 knows the layout. Collective.
  StoredLayout agreed_layout() const {
    const parallel::ParameterStore& store = wrapper_->store();
    std::string names;
    std::string counts;
    for (const auto& bucket : learned_layout_of(wrapper_->reducer())) {
      for (const std::size_t parameter : bucket) names += store.parameter(parameter).name + "\n";
      counts += std::to_string(bucket.size()) + "\n";
    }
    StoredLayout layout{.names = world_->broadcast(names)};
    TextReader agreed(world_->broadcast(counts));
    for (std::int64_t count = 0; agreed >> count;) layout.counts.push_back(count);
    return layout;
  }

  /// Whether the run fills its buckets as the one that wrote the checkpoint did.
  bool has_same_limits(const Archive& archive) const {
    return archive.text(kBuckets, "bucket_bytes") == comma_separated(limits().bucket_bytes) &&
           archive.integer(kBuckets, "last_bucket_bytes") == limits().last_bucket_bytes;
  }

  /// Empty where a name is not known.
  parallel::BucketLayout layout_in(const Archive& archive) const {
    const parallel::ParameterStore& store = wrapper_->store();
    std::map<std::string, std::size_t> places;
    for (std::size_t i = 0; i < store.size(); ++i) places[store.parameter(i).name] = i;
    const at::Tensor counts = tensor_over(archive.array(kBuckets + "/counts"));
    TextReader names(checkpoints::text_of(archive.array(kBuckets + "/param_names")));
    parallel::BucketLayout layout;
    for (std::int64_t b = 0; b < counts.numel(); ++b) {
      auto& bucket = layout.emplace_back();
      for (std::int64_t left = counts.const_data_ptr<std::int64_t>()[b]; left > 0; --left) {
        std::string name;
        std::getline(names, name);
        const auto place = places.find(name);
        if (place == places.end()) return {};
        bucket.push_back(place->second);
      }
    }
    return layout;
  }

  const mpi::Communicator* world_;
  parallel::DistributedDataParallel* wrapper_;
};

}  // namespace

std::shared_ptr<Stateful> comm_hook_state(Run& run) { return std::make_shared<CommHookState>(run); }

std::shared_ptr<Stateful> buckets_state(Run& run) { return std::make_shared<BucketsState>(run); }

}  // namespace lockstep::engine
