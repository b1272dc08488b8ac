// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/store/parameter_store.hpp"

#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "core/system/memory.hpp"
#include "models/layers/initial_values.hpp"
#include "mpi/host/shared_region.hpp"
#include "parallel/store/shards.hpp"
#include "parallel/store/step_recorder.hpp"
#include "parallel/store/tensor_collectives.hpp"
#include "parallel/store/transfers.hpp"
#include "parallel/store/write_guard.hpp"

namespace lockstep::parallel {

namespace {

constexpr std::size_t kStoreAlignment = 64;

/// [own_end - own_begin] Of a tensor without gaps.
at::Tensor own_part(const at::Tensor& tensor, const optim::Segment& part) {
  return tensor.as_strided({tensor.numel()}, {1}).narrow(0, part.own_begin, part.own_end - part.own_begin);
}

std::shared_ptr<std::byte> shared_memory(const mpi::Communicator& host, std::size_t bytes) {
  auto region = std::make_shared<mpi::SharedRegion>(host, bytes);
  std::byte* const begin = region->bytes().data();
  return {std::move(region), begin};
}

std::shared_ptr<std::byte> device_memory(at::Device device, std::size_t bytes) {
  auto memory = std::make_shared<at::Tensor>(
      at::zeros({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device)));
  auto* const begin = static_cast<std::byte*>(memory->mutable_data_ptr());
  return {std::move(memory), begin};
}

/// The parameters of each block, by number: they belong to one part and have one dtype.
std::vector<std::vector<std::size_t>> members_of_blocks(const std::vector<NamedParameter>& parameters) {
  std::vector<std::vector<std::size_t>> blocks;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto block = std::find_if(blocks.begin(), blocks.end(), [&](const std::vector<std::size_t>& members) {
      const NamedParameter& first = parameters[members.front()];
      return first.part == parameters[i].part && first.tensor.scalar_type() == parameters[i].tensor.scalar_type();
    });
    (block == blocks.end() ? blocks.emplace_back() : *block).push_back(i);
  }
  return blocks;
}

}  // namespace

ParameterStore::ParameterStore(std::vector<NamedParameter> parameters, const mpi::Communicator& world,
                               mpi::Collectives& collectives, mpi::Communicator node_ranks, bool checks_writes,
                               bool is_as_on_gpu)
    : parameters_(std::move(parameters)),
      claim_(claim(parameters_)),
      specs_(specs_of(parameters_)),
      holds_(parameters_.size()),
      device_(parameters_.front().tensor.device()),
      are_tensors_(device_.is_cuda() || is_as_on_gpu),
      checks_writes_(checks_writes),
      host_(std::move(node_ranks)),
      node_ranks_(&collectives) {
  const mpi::Communicator leaders = world.split(host_.is_root() ? 0 : 1);  // one rank of each copy
  // Some hosts may have one rank: what all do together must not depend on this one's.
  if (!world.agree(host_.size() == 1 || host_.size() == world.size())) {
    const std::int32_t lowest = host_.all_reduce(static_cast<std::int32_t>(world.rank()), mpi::Op::min);
    own_node_ranks_ = collectives.split(lowest);
    node_ranks_ = own_node_ranks_.get();
  }
  for (const std::vector<std::size_t>& members : members_of_blocks(parameters_)) {
    add_block(members);
    const std::span<std::byte> values = bytes_of_block(blocks_.size() - 1);
    if (models::PendingValues::are_pending()) continue;
    if (is_on_gpu()) {
      collectives.broadcast(values, 0);
    } else if (host_.is_root()) {
      leaders.broadcast(values);
    }
  }
  make_parts();
  divide({});
  host_.barrier();
  if (checks_writes_) world.all_or_throw([&] { guard_ = std::make_unique<WriteGuard>(blocks_, world.rank()); });
}

ParameterStore::ParameterStore(std::vector<NamedParameter> parameters, const mpi::Communicator& world,
                               const ShardRanks& ranks, std::vector<Unit> units, const Sharding& sharding)
    : parameters_(std::move(parameters)),
      claim_(claim(parameters_)),
      specs_(specs_of(parameters_)),
      holds_(parameters_.size()),
      device_(parameters_.front().tensor.device()),
      are_tensors_(device_.is_cuda() || sharding.is_as_on_gpu),
      owns_whole_(sharding.owns_whole_parameters),
      checks_writes_(false),
      host_(world.split(world.rank())),
      shard_ranks_(&ranks),
      node_ranks_(&ranks.inside()) {
  for (const NamedParameter& parameter : parameters_) {
    if (world.size() > 1) broadcast(parameter.tensor, ranks.all(), 0);
  }
  const bool is_offloaded = are_tensors_ && sharding.offloads;
  shards_ = std::make_unique<Shards>(
      parameters_, std::move(units), *node_ranks_,
      Shards::ShardsOptions{.frees = sharding.stage == 3, .prefetches = sharding.prefetches, .offloads = is_offloaded});
  if (is_offloaded) device_ = at::kCPU;
  are_tensors_ = are_tensors_ && !is_offloaded;
  for (std::size_t u = 0; u < shards_->units().size(); ++u) {
    const Unit& unit = shards_->units()[u];
    blocks_.push_back(block_of(unit, specs_, node_ranks_->rank()));
    blocks_.back().parameters = bytes_of(shards_->held(u)).data();
    auto& members = index_.emplace_back();
    for (const Slot& slot : unit.slots) members.push_back(slot.parameter);
  }
  make_parts();
}

ParameterStore::~ParameterStore() = default;

/// All parameters of a block belong to one part.
void ParameterStore::make_parts() {
  std::vector<std::vector<std::size_t>> blocks;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const std::size_t part = parameters_[index_[b].front()].part;
    blocks.resize(std::max(blocks.size(), part + 1));
    blocks[part].push_back(b);
  }
  for (std::size_t p = 0; p < blocks.size(); ++p) {
    parts_.push_back(std::make_unique<PartParameters>(*this, p, std::move(blocks[p])));
  }
}

std::shared_ptr<std::byte> ParameterStore::allocate(std::size_t bytes) {
  if (is_on_gpu()) return device_memory(device_, bytes);
  if (is_shared()) return shared_memory(host_, bytes);
  return checks_writes_ ? private_pages(bytes) : zeroed_memory(bytes);
}

void ParameterStore::add_block(const std::vector<std::size_t>& members) {
  const DType dtype = dtype_of(parameters_[members.front()].tensor, parameters_[members.front()].name);
  const std::size_t element = size_of(dtype);
  const auto step = static_cast<std::int64_t>(kStoreAlignment / element);
  optim::FlatBlock block{.dtype = dtype, .parameters = nullptr, .segments = {}};
  for (const std::size_t i : members) {
    const at::Tensor& tensor = parameters_[i].tensor;
    block.segments.push_back({.name = parameters_[i].name,
                              .shape = tensor.sizes().vec(),
                              .strides = tensor.strides().vec(),
                              .offset = block.count,
                              .count = tensor.numel(),
                              .own_begin = 0,
                              .own_end = tensor.numel()});
    block.count += (tensor.numel() + step - 1) / step * step;
  }
  memory_.push_back(allocate(static_cast<std::size_t>(block.count) * element));
  block.parameters = memory_.back().get();
  for (std::size_t s = 0; s < members.size(); ++s) {
    at::Tensor& tensor = parameters_[members[s]].tensor;
    const at::Tensor view = view_of(block.parameters + static_cast<std::size_t>(block.segments[s].offset) * element,
                                    tensor, memory_.back());
    if (host_.is_root() && tensor.numel() > 0 && !models::PendingValues::are_pending()) {
      const torch::NoGradGuard no_grad;
      view.copy_(tensor);
    }
    tensor.set_data(view);
  }
  blocks_.push_back(std::move(block));
  index_.push_back(members);
}

void ParameterStore::connect(Reducer& reducer) {
  reducer_ = &reducer;
  slices_ = ability_of<SlicedReducer>(reducer);
}

void ParameterStore::follow_buckets(const std::vector<Bucket>& buckets) {
  divide(buckets);
  if (recorder_ != nullptr) recorder_->set_buckets(buckets);
}

void ParameterStore::divide(const std::vector<Bucket>& buckets) {
  if (!is_shared()) return;
  if (owns_whole_) {
    own_whole(blocks_, host_.rank(), host_.size());
  } else {
    own_by_buckets(blocks_, index_, specs_, buckets, host_.rank(), host_.size());
  }
  for (const auto& part : parts_) part->update_ownership();
}

void ParameterStore::own_whole_parameters() {
  if (shards_) {
    if (owns_whole_) return;
    throw ConfigError(
        "optim.name: this optimizer updates whole parameters, but the shards divide them; set "
        "Sharding::owns_whole_parameters, or use another optimizer or strategy.name=ddp");
  }
  owns_whole_ = true;
  divide({});
}

void ParameterStore::finish_gradients() {
  if (reducer_ != nullptr) reducer_->finish();
}

void ParameterStore::finish_gradients_of(std::size_t part) {
  if (reducer_ != nullptr) reducer_->finish_part(part);
}

bool ParameterStore::has_gradient(std::size_t block, std::size_t segment) const {
  const std::size_t i = index_[block][segment];
  if (is_held(i)) return false;
  if (is_sliced()) return slices_->has_gradient(i);
  return parameters_[i].tensor.grad().defined();
}

void ParameterStore::visit_gradients(const std::function<void(const optim::GradientPiece&)>& visit, bool is_last) {
  if (recorder_ == nullptr) return visit_all(visit, is_last);
  recorder_->visits_begin();
  visit_all(
      [&](const optim::GradientPiece& piece) {
        recorder_->piece_begins(index_[piece.block][piece.segment]);
        visit(piece);
        recorder_->piece_ends();
      },
      is_last);
}

void ParameterStore::visit_all(const std::function<void(const optim::GradientPiece&)>& visit, bool is_last) {
  for (std::size_t b = 0; !is_sliced() && b < blocks_.size(); ++b) send_gradients(b);
  for (std::size_t b = 0; b < blocks_.size(); ++b) visit_block(b, visit, is_last);
  if (is_sliced() && is_last) slices_->release();
}

void ParameterStore::visit_block(std::size_t block, const std::function<void(const optim::GradientPiece&)>& visit,
                                 bool is_last) {
  if (!is_sliced()) send_gradients(block);
  for (std::size_t s = 0; s < blocks_[block].segments.size(); ++s) {
    if (!has_gradient(block, s)) continue;
    if (!is_sliced()) {
      visit_whole(block, s, visit);
      continue;
    }
    const optim::Segment& segment = blocks_[block].segments[s];
    slices_->visit(
        index_[block][s], segment.own_begin, segment.own_end,
        [&](std::int64_t begin, std::int64_t count, const std::byte* values) {
          visit({.block = block, .segment = s, .begin = begin, .count = count, .values = values});
        },
        /*keeps=*/!is_last);
  }
  if (is_last) forget_sent_gradients(block);
}

void ParameterStore::send_gradients(std::size_t block) {
  if (!has_gradients_elsewhere()) return;
  if (!host_gradients_) {
    std::vector<at::Tensor> memory;
    for (const optim::FlatBlock& each : blocks_) memory.push_back(page_locked(each.count, scalar_type_of(each.dtype)));
    host_gradients_ = std::make_unique<HostCopies>(parameters_.front().tensor.device(), std::move(memory));
  }
  if (!host_gradients_->begin(block)) return;
  for (std::size_t s = 0; s < blocks_[block].segments.size(); ++s) {
    const optim::Segment& part = blocks_[block].segments[s];
    if (part.own_begin == part.own_end || !has_gradient(block, s)) continue;
    host_gradients_->start(block, part.offset + part.own_begin, own_part(aligned_gradient(block, s).detach(), part));
  }
}

void ParameterStore::forget_sent_gradients(std::size_t block) {
  if (host_gradients_) host_gradients_->forget(block);  // their memory may be used again
}

void ParameterStore::visit_whole(std::size_t block, std::size_t segment,
                                 const std::function<void(const optim::GradientPiece&)>& visit) {
  const optim::Segment& part = blocks_[block].segments[segment];
  if (part.own_begin == part.own_end) return;
  at::Tensor own;
  if (host_gradients_) {
    own = host_gradients_->get(block).narrow(0, part.offset + part.own_begin, part.own_end - part.own_begin);
  } else {
    own = own_part(aligned_gradient(block, segment).detach(), part).cpu();
  }
  visit({.block = block,
         .segment = segment,
         .begin = part.own_begin,
         .count = part.own_end - part.own_begin,
         .values = bytes_of(own).data()});
}

at::Tensor ParameterStore::aligned_gradient(std::size_t block, std::size_t segment) const {
  const at::Tensor& parameter = parameters_[index_[block][segment]].tensor;
  at::Tensor& gradient = parameter.mutable_grad();
  if (gradient.is_sparse()) gradient = gradient.to_dense();
  if (gradient.scalar_type() != parameter.scalar_type() || gradient.strides() != parameter.strides()) {
    const torch::NoGradGuard no_grad;
    gradient = at::empty_like(parameter).copy_(gradient);  // optimizers walk both side by side
  }
  return gradient;
}

at::Tensor ParameterStore::flat_parameter(std::size_t block, std::size_t segment) {
  const optim::Segment& part = blocks_[block].segments[segment];
  if (!shards_) return own_part(parameters_[index_[block][segment]].tensor.detach(), part);
  const std::int64_t first = part.own_begin == part.own_end ? 0 : part.offset + part.own_begin;
  return shards_->held(block).narrow(0, first, part.own_end - part.own_begin);
}

at::Tensor ParameterStore::flat_gradient(std::size_t block, std::size_t segment) {
  const optim::Segment& part = blocks_[block].segments[segment];
  if (is_sliced()) {
    return dynamic_cast<const TensorSlices&>(*reducer_).part_of(index_[block][segment], part.own_begin, part.own_end);
  }
  return own_part(aligned_gradient(block, segment).detach(), part);
}

int ParameterStore::copies() const noexcept { return shard_ranks_ != nullptr ? shard_ranks_->copies() : 1; }

void ParameterStore::sum_over_ranks(const at::Tensor& values) {
  if (is_divided()) shard_ranks_->sum(values);
}

void ParameterStore::maximum_over_ranks(const at::Tensor& values) {
  if (is_divided()) all_reduce(values, shard_ranks_->all(), mpi::ReduceOp::max);
}

void ParameterStore::drop_gradients_of(std::optional<std::size_t> part) {
  if (slices_ != nullptr) slices_->release();
  for (std::size_t b = 0; b < blocks_.size(); ++b) forget_sent_gradients(b);
  for (const NamedParameter& parameter : parameters_) {
    if (!part || parameter.part == *part) parameter.tensor.mutable_grad().reset();
  }
}

void ParameterStore::write(const std::function<void()>& body) {
  if (shards_) {
    write_slices(body);
    if (!shards_->frees()) shards_->publish();
    return;
  }
  // Nobody must still read what is about to change. Where slices wait to be visited all have finished their backward.
  if (!is_sliced()) meet();
  write_alone(body);
  meet();  // nobody reads before all have written
}

void ParameterStore::write_alone(const std::function<void()>& body) {
  if (shards_) {
    write_slices(body);
    shards_->follow_brought_back();
    return;
  }
  const WriteGuard::Opened opened(guard_.get());
  body();
}

void ParameterStore::write_slices(const std::function<void()>& body) {
  shards_->await_brought_back();
  body();
  shards_->bring_back();
}

void ParameterStore::write_whole(const std::function<void()>& body) {
  if (shards_) {
    return read_whole([this, &body] {
      body();
      shards_->take_slices();
    });
  }
  write([this, &body] {
    if (host_.is_root()) body();
  });
}

void ParameterStore::read_whole(const std::function<void()>& body) {
  const bool gathers = shards_ && shards_->frees();
  for (std::size_t u = 0; gathers && u < blocks_.size(); ++u) shards_->gather(u);
  body();
  if (gathers) shards_->release_all();
}

std::span<std::byte> ParameterStore::bytes_of_block(std::size_t block) const {
  const optim::FlatBlock& flat_block = blocks_.at(block);
  return {flat_block.parameters, static_cast<std::size_t>(flat_block.count) * size_of(flat_block.dtype)};
}

std::vector<at::Tensor> ParameterStore::segments_of(std::size_t block, std::span<std::byte> of_block, DType dtype) {
  const optim::FlatBlock& flat_block = blocks_.at(block);
  at::Tensor all = vector_over(of_block.data(), flat_block.count, scalar_type_of(dtype), device_);
  std::int64_t first = 0;
  if (shards_) {
    all = shards_->whole(block, all);
    first = shards_->units()[block].begin(node_ranks_->rank());
  }
  std::vector<at::Tensor> segments;
  for (std::size_t s = 0; s < flat_block.segments.size(); ++s) {
    const at::Tensor& like = parameters_[index_[block][s]].tensor;
    segments.push_back(all.as_strided(like.sizes(), like.strides(), first + flat_block.segments[s].offset));
  }
  return segments;
}

void ParameterStore::broadcast_from_owner(std::size_t block, std::size_t segment, const at::Tensor& values) {
  const Unit& unit = shards_->units()[block];
  broadcast(values, *node_ranks_, unit.owner_of(unit.slots[segment]));
}

void ParameterStore::meet() const {
  if (!is_shared()) return;
  const StepRecorder::Meeting meeting(recorder_);
  node_ranks_->barrier();
}

void ParameterStore::sum_over_owners(std::span<double> values) const {
  if (!is_shared() && !shards_) return;
  const StepRecorder::Meeting meeting(recorder_);
  if (shards_) return shard_ranks_->sum(values);
  node_ranks_->all_reduce(values.data(), values.size(), DType::float64, mpi::ReduceOp::sum);
}

PartParameters::PartParameters(ParameterStore& store, std::size_t part, std::vector<std::size_t> blocks)
    : store_(&store), part_(part), numbers_(std::move(blocks)) {
  for (const std::size_t number : numbers_) blocks_.push_back(store.blocks()[number]);
}

void PartParameters::update_ownership() {
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const std::vector<optim::Segment>& from = store_->blocks()[numbers_[b]].segments;
    for (std::size_t s = 0; s < from.size(); ++s) {
      blocks_[b].segments[s].own_begin = from[s].own_begin;
      blocks_[b].segments[s].own_end = from[s].own_end;
    }
  }
}

void PartParameters::visit_gradients(const std::function<void(const optim::GradientPiece&)>& visit, bool is_last) {
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    store_->visit_block(
        in_store(b),
        [&](optim::GradientPiece piece) {
          piece.block = b;
          visit(piece);
        },
        is_last);
  }
}

}  // namespace lockstep::parallel
