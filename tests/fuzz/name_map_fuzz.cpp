// SPDX-License-Identifier: BSD-3-Clause
// The name of a tensor in a public file: where a map has our name for it, that name leads back to an equal one.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "families/names.hpp"

using namespace lockstep::families;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view name(reinterpret_cast<const char*>(data), size);
  for (const FamilyRow& family : builtin_families()) {
    for (const LibraryRow& library : family.libraries) {
      to_public_name(library.names, name);
      const auto ours = to_own_name(library.names, name);
      if (!ours) continue;
      const auto theirs = to_public_name(library.names, ours->name);
      if (!theirs || theirs->operation != ours->operation) std::abort();
      const auto again = to_own_name(library.names, theirs->name);
      if (!again || again->name != ours->name) std::abort();
    }
  }
  return 0;
}
