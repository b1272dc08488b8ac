// SPDX-License-Identifier: BSD-3-Clause
#include "embed/rank_buffers.hpp"

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "engine/state/paths.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::embed {

namespace {

using checkpoints::Archive;

const std::string kBuffers = engine::kHooks + "/buffers";

std::string group_of(std::int64_t buffer) { return kBuffers + "/" + std::to_string(buffer); }

}  // namespace

/// The buffers of all ranks go to the ranks that write, one after the other.
class RankBuffersState : public engine::Stateful {
 public:
  RankBuffersState(RankBuffers& buffers, const mpi::Communicator& world) : buffers_(&buffers), world_(&world) {}

  std::string name() const override { return "buffers"; }

  void capture(const engine::StateWriter& writer) override {
    writer.set(kBuffers, "lanes", buffers_->layout_.lanes);
    writer.set(kBuffers, "ranks", std::int64_t{world_->size()});
    for (int rank = 0; rank < world_->size(); ++rank) {
      const bool is_mine = rank == world_->rank();
      std::array<std::int64_t, 2> range = {buffers_->first(), std::ssize(buffers_->buffers_)};
      world_->broadcast(std::span<std::int64_t>(range), rank);
      for (std::int64_t i = 0; i < range[1]; ++i) {
        send(writer, group_of(range[0] + i), is_mine ? &buffers_->buffers_[static_cast<std::size_t>(i)] : nullptr,
             rank);
      }
    }
  }

  void compare(const Archive& archive, const engine::RestoreOptions&, engine::CompatibilityReport& report) override {
    if (!archive.has_attribute(kBuffers, "lanes")) return;
    const std::int64_t lanes = archive.integer(kBuffers, "lanes");
    const std::int64_t ranks = archive.integer(kBuffers, "ranks");
    if (lanes != buffers_->layout_.lanes) {
      report.add({.kind = engine::MismatchKind::data,
                  .text = "its buffers belong to " + std::to_string(lanes) + " lanes, but train.lanes is " +
                          std::to_string(buffers_->layout_.lanes)});
    } else if (lanes == 0 && ranks != world_->size()) {
      report.add({.kind = engine::MismatchKind::data,
                  .text = "its buffers are those of " + std::to_string(ranks) + " ranks, but there are " +
                          std::to_string(world_->size()) + "; with train.lanes, buffers belong to lanes instead"});
    }
  }

  void restore(const Archive& archive, const engine::RestoreOptions&) override {
    if (!archive.has_attribute(kBuffers, "lanes")) return;
    for (std::size_t i = 0; i < buffers_->buffers_.size(); ++i) {
      const std::string group = group_of(buffers_->first() + static_cast<std::int64_t>(i));
      std::map<std::string, at::Tensor> values;
      for (const std::string& path : archive.array_paths()) {
        if (!path.starts_with(group + "/")) continue;
        values[checkpoints::decode_name(path.substr(group.size() + 1))] =
            engine::tensor_over(archive.array(path)).clone();
      }
      buffers_->buffers_[i].restore(std::move(values), archive.integer(group, "pushed"));
    }
  }

 private:
  /// One buffer of a rank to all. `mine` is null on other ranks.
  void send(const engine::StateWriter& writer, const std::string& group, const ReplayBuffer* mine, int rank) const {
    std::int64_t pushed = mine == nullptr ? 0 : mine->pushed();
    world_->broadcast(std::span(&pushed, 1), rank);
    writer.set(group, "pushed", pushed);
    const std::map<std::string, at::Tensor> values =
        mine == nullptr ? std::map<std::string, at::Tensor>{} : mine->values();
    auto names = static_cast<std::int64_t>(values.size());
    world_->broadcast(std::span(&names, 1), rank);
    auto next = values.begin();
    for (std::int64_t i = 0; i < names; ++i) {
      const std::string name = world_->broadcast(mine == nullptr ? "" : next->first, rank);
      writer.put(engine::path(group, name), send(mine == nullptr ? at::Tensor() : (next++)->second, rank));
    }
  }

  at::Tensor send(const at::Tensor& mine, int rank) const {
    std::vector<std::int64_t> form;  // type and shape
    if (mine.defined()) {
      form = mine.sizes().vec();
      form.push_back(static_cast<std::int64_t>(mine.scalar_type()));
    }
    std::int64_t numbers = std::ssize(form);
    world_->broadcast(std::span(&numbers, 1), rank);
    form.resize(static_cast<std::size_t>(numbers));
    world_->broadcast(std::span(form), rank);
    if (world_->size() == 1) return mine;
    const auto type = static_cast<at::ScalarType>(form.back());
    form.pop_back();
    const at::Tensor copy = mine.defined() ? mine.contiguous() : at::empty(form, at::TensorOptions(type));
    world_->broadcast(parallel::bytes_of(copy), rank);
    return copy;
  }

  RankBuffers* buffers_;
  const mpi::Communicator* world_;
};

RankBuffers::RankBuffers(const engine::BufferSettings& settings, const engine::BatchLayout& layout, std::uint64_t seed,
                         int rank)
    : layout_(layout), rank_(rank) {
  const std::int64_t count = layout.lanes > 0 ? layout.micro_batches : 1;
  for (std::int64_t i = 0; i < count; ++i) {
    buffers_.emplace_back(ReplayOptions{.capacity = settings.capacity,
                                        .is_reservoir = settings.is_reservoir,
                                        .seed = seed,
                                        .number = static_cast<std::uint64_t>(first() + i)});
  }
}

std::vector<std::vector<std::int64_t>> RankBuffers::deal(std::int64_t samples, std::optional<std::int64_t> lane) const {
  const std::int64_t count = std::ssize(buffers_);
  if (lane && (layout_.lanes == 0 || *lane < first() || *lane >= first() + count)) {
    throw DataError("lane " + std::to_string(*lane) + " does not belong to this rank, which has " +
                    (layout_.lanes == 0
                         ? "none, because train.lanes is 0"
                         : "the lanes " + std::to_string(first()) + " to " + std::to_string(first() + count - 1)));
  }
  std::int64_t dealt = 0;
  for (const ReplayBuffer& buffer : buffers_) dealt += buffer.pushed();
  std::vector<std::vector<std::int64_t>> rows(buffers_.size());
  for (std::int64_t row = 0; row < samples; ++row) {
    rows[static_cast<std::size_t>(lane ? *lane - first() : (dealt + row) % count)].push_back(row);
  }
  return rows;
}

void RankBuffers::push(const batch::Batch& batch, const std::vector<std::vector<std::int64_t>>& rows) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (!rows[i].empty()) buffers_[i].push(batch, rows[i]);
  }
}

std::int64_t RankBuffers::size() const {
  std::int64_t size = 0;
  for (const ReplayBuffer& buffer : buffers_) size += buffer.size();
  return size;
}

/// The samples of a buffer in each step.
std::int64_t RankBuffers::share_of(std::size_t buffer) const {
  if (buffers_[buffer].size() == 0) return 0;
  return layout_.lanes > 0 ? layout_.micro_batch_size : layout_.share.count;
}

std::int64_t RankBuffers::samples_per_step() const {
  std::int64_t samples = 0;
  for (std::size_t i = 0; i < buffers_.size(); ++i) samples += share_of(i);
  return samples;
}

std::vector<batch::ValueMap> RankBuffers::draw(std::int64_t step) const {
  std::vector<batch::ValueMap> parts;
  if (layout_.lanes > 0) {
    for (std::size_t i = 0; i < buffers_.size(); ++i) parts.push_back(buffers_[i].draw(step, share_of(i)));
    return parts;
  }
  const batch::ValueMap all = buffers_.front().draw(step, share_of(0));
  for (std::int64_t part = 0; part < layout_.micro_batches; ++part) {
    const data::Share share = layout_.positions_of(part);
    batch::ValueMap values;
    for (const auto& [name, value] : all) {
      values[name] = value.as<at::Tensor>().narrow(0, share.begin - layout_.share.begin, share.count);
    }
    parts.push_back(std::move(values));
  }
  return parts;
}

std::shared_ptr<engine::Stateful> RankBuffers::state(const mpi::Communicator& world) {
  return std::make_shared<RankBuffersState>(*this, world);
}

}  // namespace lockstep::embed
