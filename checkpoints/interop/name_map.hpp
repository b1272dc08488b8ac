// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Maps between the parameter names of our models and those of other libraries, as tables.
namespace lockstep::checkpoints {

/// The change of a tensor between the two forms. The bytes are always the same.
enum class NameOperation : std::uint8_t {
  same,
  channel_scale,  ///< ours [C], theirs [C, 1, 1]
};

/// One row: a pattern of our names and one of theirs. `{i}` stands for a number, which has the same value on both
/// sides; `{2i+1}` stands for a number that is computed from it. `*` at the end stands for the last part of a name,
/// such as "weight". The first row that matches is used.
struct NameRow {
  std::string_view ours;
  std::string_view theirs;
  NameOperation operation = NameOperation::same;
};

/// The names of one library for one family of models.
struct NameMap {
  std::string_view library;  ///< "torchvision" or "timm"
  std::string_view family;   ///< our row of models, or its beginning: "vit" for vit_tiny_patch16_224
  std::span<const NameRow> rows;
  std::string_view late = {};         ///< our parameter that comes later in the order of the library: behind those
  std::string_view before_late = {};  ///< `before_late`: whose names begin with this
};

/// Every map. A family without a map for a library has the same names there.
std::span<const NameMap> name_maps();

/// The map of a library for a model, or null if the names are the same.
/// @param model  value of model.name
const NameMap* find_name_map(std::string_view library, std::string_view model);

struct MappedName {
  std::string name;
  NameOperation operation = NameOperation::same;
};

/// Our name for one of theirs; nothing if no row matches.
std::optional<MappedName> to_own_name(const NameMap& map, std::string_view theirs);
/// Their name for one of ours; nothing if no row matches.
std::optional<MappedName> to_public_name(const NameMap& map, std::string_view ours);

/// The shape of our tensor for a shape of theirs, and the reverse. A shape that the operation does not expect is
/// returned as it is.
std::vector<std::int64_t> to_own_shape(NameOperation operation, std::vector<std::int64_t> theirs);
std::vector<std::int64_t> to_public_shape(NameOperation operation, std::vector<std::int64_t> ours);

}  // namespace lockstep::checkpoints
