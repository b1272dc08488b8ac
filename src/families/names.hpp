// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/families/family.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The patterns of rows.
namespace lockstep::families {

struct MappedName {
  std::string name;
  NameOperation operation = NameOperation::same;
};

/// Our name for one of theirs; nothing if no row matches.
std::optional<MappedName> to_own_name(const std::vector<NameRow>& rows, std::string_view theirs);
/// Their name for one of ours; nothing if no row matches.
std::optional<MappedName> to_public_name(const std::vector<NameRow>& rows, std::string_view ours);

/// The shape of our tensor for a shape of theirs, and the reverse. A shape that the operation does not expect is
/// returned as it is.
std::vector<std::int64_t> to_own_shape(NameOperation operation, std::vector<std::int64_t> theirs);
std::vector<std::int64_t> to_public_shape(NameOperation operation, std::vector<std::int64_t> ours);

/// The layers of a model by the rows of its family, as beginnings of names. Rows without a name are no layers.
/// @param names  names of all parameters
std::vector<std::vector<std::string>> layers_in(const std::vector<std::vector<std::string>>& rows,
                                                const std::vector<std::string>& names);

/// The row of a library, or null.
const LibraryRow* find_library(const FamilyRow& family, std::string_view library);

}  // namespace lockstep::families
