// SPDX-License-Identifier: BSD-3-Clause
#include "comm_state.hpp"

#include <lockstep/log/log.hpp>
#include <lockstep/parallel/tensor_collectives.hpp>

#include <torch/types.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>

#include "state_names.hpp"
#include "tensor_arrays.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using checkpoints::Array;

const std::string kPerRank = kCommHook + "/ranks";
const std::string kCommon = kCommHook + "/common";
const std::string kIntegers = kCommHook + "/integers";

// ---- the hook

/// Names, types and shapes, for a comparison between ranks.
std::string description_of(const std::map<std::string, at::Tensor>& tensors) {
  std::ostringstream text;
  for (const auto& [name, tensor] : tensors) text << name << ' ' << tensor.dtype() << ' ' << tensor.sizes() << '\n';
  return text.str();
}

/// [ranks, ...]: every rank's tensor of one name.
Array gathered(const at::Tensor& tensor, const std::string& name, const mpi::Communicator& world) {
  const Array mine = array_of(tensor, name);
  const auto all = std::make_shared<std::vector<std::byte>>(mine.bytes.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(mine.bytes, std::span<std::byte>(*all));
  Array result{.dtype = mine.dtype, .shape = {world.size()}, .bytes = *all, .owner = all};
  result.shape.insert(result.shape.end(), mine.shape.begin(), mine.shape.end());
  return result;
}

void capture_hook(Archive& archive, Strategy& strategy, bool is_writer) {
  if (is_writer) archive.set(kCommHook, "type", strategy.comm_hook());
  const parallel::HookMemory* const memory = strategy.model().hook_memory();
  if (memory == nullptr) return;
  const mpi::Communicator& world = strategy.world();
  const parallel::HookState state = memory->state();
  const std::vector<std::string> descriptions = world.all_gather(description_of(state.tensors));
  if (std::adjacent_find(descriptions.begin(), descriptions.end(), std::not_equal_to<>()) != descriptions.end()) {
    throw std::logic_error("the states of a communication hook have other names or shapes on other ranks");
  }
  for (const auto& [name, tensor] : state.tensors) {
    const Array all = gathered(tensor, name, world);
    if (is_writer) archive.put(path(kPerRank, name), all);
  }
  if (!is_writer) return;
  for (const auto& [name, tensor] : state.common) archive.put(path(kCommon, name), array_of(tensor, name));
  for (const auto& [name, value] : state.integers) archive.set(kIntegers, name, value);
}

bool has_hook_of(const Archive& archive, const Strategy& strategy) {
  return archive.has_attribute(kCommHook, "type") && archive.text(kCommHook, "type") == strategy.comm_hook();
}

bool is_of_as_many_ranks(const Archive& archive, const Strategy& strategy) {
  return archive.integer("/", "world_size") == strategy.world().size();
}

parallel::HookState state_in(const Archive& archive, const Strategy& strategy) {
  parallel::HookState state;
  for (const auto& [name, value] : archive.attributes_of(kIntegers)) {
    state.integers[name] = archive.integer(kIntegers, name);
  }
  for (const std::string& name : archive.arrays_in(kCommon)) {
    state.common[checkpoints::decode_name(name)] = tensor_over(archive.array(kCommon + "/" + name)).clone();
  }
  if (!is_of_as_many_ranks(archive, strategy)) return state;
  for (const std::string& name : archive.arrays_in(kPerRank)) {
    const at::Tensor all = tensor_over(archive.array(kPerRank + "/" + name));
    state.tensors[checkpoints::decode_name(name)] = all[strategy.world().rank()].clone();
  }
  return state;
}

void restore_hook(Strategy& strategy, const Archive& archive) {
  parallel::HookMemory* const memory = strategy.model().hook_memory();
  if (memory == nullptr) return;
  if (!has_hook_of(archive, strategy)) {
    log::info("ddp.comm_hook=" + strategy.comm_hook() + " begins anew: the checkpoint holds no state of it");
    return;
  }
  if (!is_of_as_many_ranks(archive, strategy) && !archive.arrays_in(kPerRank).empty()) {
    log::info("what the ranks kept to themselves for ddp.comm_hook=" + strategy.comm_hook() +
              " begins anew: there were " + std::to_string(archive.integer("/", "world_size")) + " of them");
  }
  strategy.world().together([&] {
    parallel::HookState state = state_in(archive, strategy);
    const at::Device device = strategy.device();
    for (auto* const tensors : {&state.tensors, &state.common}) {
      for (auto& [name, tensor] : *tensors) tensor = tensor.to(device);
    }
    memory->load_state(state);
  });
}

// ---- the buckets

std::string text_of(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

void capture_buckets(Archive& archive, Strategy& strategy, bool is_writer) {
  if (!strategy.model().has_buckets()) return;
  const parallel::ParameterStore& store = strategy.model().parameters();
  std::string names;
  std::string numbers;
  for (const auto& bucket : strategy.model().reducer().learned_layout()) {
    for (const std::size_t parameter : bucket) names += store.parameter(parameter).name + "\n";
    numbers += std::to_string(bucket.size()) + "\n";
  }
  // Until buckets are built by it, rank 0 alone knows the layout.
  names = strategy.world().broadcast(names);
  std::istringstream agreed(strategy.world().broadcast(numbers));
  std::vector<std::int64_t> counts;
  for (std::int64_t count = 0; agreed >> count;) counts.push_back(count);
  if (!is_writer || counts.empty()) return;  // nothing is known before the first step
  const parallel::BucketLimits& limits = strategy.model().options().reducer.limits;
  archive.set(kBuckets, "bucket_bytes", text_of(limits.bucket_bytes));
  archive.set(kBuckets, "last_bucket_bytes", limits.last_bucket_bytes);
  archive.put(kBuckets + "/param_names", checkpoints::text_array(names));
  archive.put(kBuckets + "/counts", array_of(std::move(counts), DType::int64));
}

/// Whether the run fills its buckets as the one that wrote the checkpoint did.
bool has_same_limits(const Archive& archive, Strategy& strategy) {
  const parallel::BucketLimits& limits = strategy.model().options().reducer.limits;
  return archive.text(kBuckets, "bucket_bytes") == text_of(limits.bucket_bytes) &&
         archive.integer(kBuckets, "last_bucket_bytes") == limits.last_bucket_bytes;
}

bool has_buckets(const Archive& archive) { return archive.has(kBuckets + "/counts"); }

/// Empty where a name is not known.
parallel::BucketLayout layout_in(const Archive& archive, const parallel::ParameterStore& store) {
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < store.size(); ++i) places[store.parameter(i).name] = i;
  const at::Tensor counts = tensor_over(archive.array(kBuckets + "/counts"));
  std::istringstream names(checkpoints::text_of(archive.array(kBuckets + "/param_names")));
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

void restore_buckets(Strategy& strategy, const Archive& archive) {
  if (!strategy.model().has_buckets() || !has_buckets(archive)) return;
  if (!has_same_limits(archive, strategy)) {
    log::info("buckets are laid out anew: the checkpoint's are by ddp.bucket_bytes = " +
              archive.text(kBuckets, "bucket_bytes") +
              " and ddp.last_bucket_bytes = " + std::to_string(archive.integer(kBuckets, "last_bucket_bytes")));
    return;
  }
  parallel::BucketLayout layout;
  strategy.world().together([&] { layout = layout_in(archive, strategy.model().parameters()); });
  strategy.model().reducer().restore_layout(layout);
}

}  // namespace

void capture_comm(Archive& archive, Strategy& strategy, bool is_writer) {
  capture_hook(archive, strategy, is_writer);
  capture_buckets(archive, strategy, is_writer);
}

void restore_comm(Strategy& strategy, const Archive& archive) {
  restore_hook(strategy, archive);
  restore_buckets(strategy, archive);
}

std::string comm_difference(Strategy& strategy, const Archive& archive) {
  if (strategy.world().size() == 1 && archive.integer("/", "world_size") == 1) return "";  // nothing travels
  const bool has_memory = strategy.model().hook_memory() != nullptr;
  if (archive.has_attribute(kCommHook, "type") ? !has_hook_of(archive, strategy) : has_memory) {
    const std::string before =
        archive.has_attribute(kCommHook, "type") ? archive.text(kCommHook, "type") : "not in the checkpoint";
    return "statistical, because ddp.comm_hook is " + strategy.comm_hook() + " and was " + before;
  }
  // Sums over ranks are in rank order, whatever lies beside them in a bucket: layouts change no bit. Not so on a GPU,
  // where NCCL divides a bucket, and in a hook that takes a bucket for a matrix.
  const bool depends_on_buckets = has_memory || strategy.collectives().has_device_buckets();
  if (depends_on_buckets && has_buckets(archive) && !has_same_limits(archive, strategy)) {
    return "order, because it was written with other ddp.bucket_bytes or ddp.last_bucket_bytes";
  }
  return "";
}

}  // namespace lockstep::engine
