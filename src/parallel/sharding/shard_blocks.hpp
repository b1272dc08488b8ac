// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/models/model.hpp>

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parallel/store/named_parameter.hpp"

namespace lockstep::parallel {

class Shards;

/// Parameters that are gathered together: those inside of a block. Without a block: those that are in none that was
/// chosen, or in several.
struct ShardGroup {
  const models::Block* block = nullptr;
  std::vector<std::size_t> members;  ///< numbers of parameters, ascending
};

/// The group without a block comes first, the others in the order of registration; none of them empty.
/// @param patterns  see Sharding::blocks
/// @throws ConfigError  a pattern matches no block
std::vector<ShardGroup> shard_groups(const models::Model& model, const std::vector<NamedParameter>& parameters,
                                     const std::vector<std::string>& patterns);

/// The groups' members, those of different types apart; and for each such list its group.
struct UnitMembers {
  std::vector<std::vector<std::size_t>> members;
  std::vector<std::size_t> group_of;
};
UnitMembers members_by_type(const std::vector<ShardGroup>& groups, const std::vector<NamedParameter>& parameters);

/// The same units, each divided so that its parameters belong to one part.
UnitMembers divided_by_part(const UnitMembers& units, const std::vector<NamedParameter>& parameters);

/// Gathers parameters just before their block computes, forwards and backwards, and releases them after.
class BlockGathering {
 public:
  /// @param shards    outlives this
  /// @param group_of  by unit
  BlockGathering(Shards& shards, const std::vector<ShardGroup>& groups, const std::vector<std::size_t>& group_of);

  /// Called before and, where no backward follows, after a forward of the whole model. Collective.
  void begin_forward();
  void end_forward();
  /// Collective: every rank runs the same blocks in the same order.
  models::Tensors run(models::Block& block, const models::Tensors& inputs, const models::Forward& next);

 private:
  using GroupIndex = std::size_t;
  using GroupOrder = std::vector<GroupIndex>;

  void gather(GroupIndex group);
  void request(std::optional<GroupIndex> group);
  void release(GroupIndex group);
  /// The group that the forward before this one ran `distance` places after the group.
  std::optional<GroupIndex> neighbor(GroupIndex group, std::ptrdiff_t distance) const;

  Shards* shards_;
  std::map<const models::Block*, GroupIndex> group_of_block_;
  std::vector<std::vector<std::size_t>> units_;  // units of each group
  GroupOrder last_order_;                        // order of the previous forward
  GroupOrder order_;                             // order of the current forward
};

}  // namespace lockstep::parallel
