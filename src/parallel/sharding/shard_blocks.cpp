// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/sharding/shard_blocks.hpp"

#include <torch/types.h>

#include <algorithm>
#include <set>
#include <utility>

#include "models/layers/recompute.hpp"
#include "parallel/store/shards.hpp"

namespace lockstep::parallel {

namespace {

using models::Block;

bool consists_of_blocks(const Block& block) {
  const auto children = block.children();
  return std::any_of(children.begin(), children.end(),
                     [](const auto& child) { return dynamic_cast<const Block*>(child.get()) != nullptr; });
}

/// Those that are in no other of the kind; the model itself does not count.
std::vector<const Block*> outermost_composites(const models::Model& model) {
  std::vector<const Block*> chosen;
  std::string inside;  // name of the last chosen block, followed by a dot
  for (const auto& child : model.named_modules({}, /*include_self=*/false)) {
    const auto* const block = dynamic_cast<const Block*>(child.value().get());
    if (block == nullptr || !consists_of_blocks(*block)) continue;
    if (!inside.empty() && child.key().starts_with(inside)) continue;
    chosen.push_back(block);
    inside = child.key() + ".";
  }
  return chosen;
}

/// The parameters of each block by number.
std::vector<std::size_t> parameters_in(const Block& block, const std::vector<NamedParameter>& parameters) {
  std::set<std::size_t> numbers;
  for (const at::Tensor& tensor : block.parameters()) {
    const auto found = std::find_if(parameters.begin(), parameters.end(),
                                    [&tensor](const NamedParameter& p) { return p.tensor.is_same(tensor); });
    if (found != parameters.end()) numbers.insert(static_cast<std::size_t>(found - parameters.begin()));
  }
  return {numbers.begin(), numbers.end()};
}

/// The same units, each divided so that its parameters have one key.
template <class KeyOf>
UnitMembers divided_by(const UnitMembers& units, const KeyOf& key_of) {
  UnitMembers result;
  for (std::size_t u = 0; u < units.members.size(); ++u) {
    std::map<decltype(key_of(std::size_t{})), std::vector<std::size_t>> by_key;
    for (const std::size_t i : units.members[u]) by_key[key_of(i)].push_back(i);
    for (auto& [key, members] : by_key) {
      result.members.push_back(std::move(members));
      result.group_of.push_back(units.group_of[u]);
    }
  }
  return result;
}

}  // namespace

std::vector<ShardGroup> shard_groups(const models::Model& model, const std::vector<NamedParameter>& parameters,
                                     const std::vector<std::string>& patterns) {
  const std::vector<const Block*> chosen =
      patterns.empty() ? outermost_composites(model) : models::matching_blocks(model, patterns, "strategy.blocks");
  std::vector<std::size_t> owners(parameters.size());  // how many chosen blocks have the parameter
  std::vector<ShardGroup> groups = {{}};
  for (const Block* const block : chosen) {
    groups.push_back({block, parameters_in(*block, parameters)});
    for (const std::size_t i : groups.back().members) ++owners[i];
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (owners[i] != 1) groups.front().members.push_back(i);
  }
  for (std::size_t g = 1; g < groups.size(); ++g) {
    std::erase_if(groups[g].members, [&owners](std::size_t i) { return owners[i] != 1; });
  }
  std::erase_if(groups, [](const ShardGroup& group) { return group.members.empty(); });
  return groups;
}

UnitMembers members_by_type(const std::vector<ShardGroup>& groups, const std::vector<NamedParameter>& parameters) {
  UnitMembers whole;
  for (const ShardGroup& group : groups) {
    whole.group_of.push_back(whole.members.size());
    whole.members.push_back(group.members);
  }
  return divided_by(whole, [&](std::size_t i) { return parameters[i].tensor.scalar_type(); });
}

UnitMembers divided_by_part(const UnitMembers& units, const std::vector<NamedParameter>& parameters) {
  return divided_by(units, [&](std::size_t i) { return parameters[i].part; });
}

BlockGathering::BlockGathering(Shards& shards, const std::vector<ShardGroup>& groups,
                               const std::vector<std::size_t>& group_of)
    : shards_(&shards), units_(groups.size()) {
  for (std::size_t u = 0; u < group_of.size(); ++u) units_[group_of[u]].push_back(u);
  for (GroupIndex g = 0; g < groups.size(); ++g) group_of_block_[groups[g].block] = g;
}

void BlockGathering::gather(GroupIndex group) {
  for (const std::size_t unit : units_[group]) shards_->gather(unit);
}

void BlockGathering::request(std::optional<GroupIndex> group) {
  if (!group) return;
  for (const std::size_t unit : units_[*group]) shards_->request(unit);
}

void BlockGathering::release(GroupIndex group) {
  for (const std::size_t unit : units_[group]) shards_->release(unit);
}

std::optional<BlockGathering::GroupIndex> BlockGathering::neighbor(GroupIndex group, std::ptrdiff_t distance) const {
  const auto found = std::find(last_order_.begin(), last_order_.end(), group);
  if (found == last_order_.end()) return std::nullopt;
  const std::ptrdiff_t place = found - last_order_.begin() + distance;
  if (place < 0 || place >= std::ssize(last_order_)) return std::nullopt;
  return last_order_[static_cast<std::size_t>(place)];
}

void BlockGathering::begin_forward() {
  if (!order_.empty()) last_order_ = std::exchange(order_, {});
  const auto root = group_of_block_.find(nullptr);
  if (root != group_of_block_.end()) gather(root->second);
}

void BlockGathering::end_forward() {
  const auto root = group_of_block_.find(nullptr);
  if (root != group_of_block_.end()) release(root->second);
}

models::Tensors BlockGathering::run(Block& block, const models::Tensors& inputs, const models::Forward& next) {
  const auto found = group_of_block_.find(&block);
  if (found == group_of_block_.end()) return next(inputs);
  const GroupIndex group = found->second;
  gather(group);
  if (models::is_recomputing()) return next(inputs);  // its backward follows and gives the memory back
  order_.push_back(group);
  request(neighbor(group, 1));
  models::Tensors outputs = next(inputs);
  bool has_backward = false;
  for (const at::Tensor& output : outputs) {
    if (!at::GradMode::is_enabled() || !output.defined() || !output.requires_grad()) continue;
    has_backward = true;
    output.register_hook([this, group](const at::Tensor&) {
      gather(group);
      request(neighbor(group, -1));
    });
  }
  // Backward begins with the block that forward ends with.
  const bool is_last = !last_order_.empty() && last_order_.back() == group;
  if (!has_backward || !is_last) release(group);
  return outputs;
}

}  // namespace lockstep::parallel
