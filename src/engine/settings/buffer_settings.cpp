// SPDX-License-Identifier: BSD-3-Clause
#include "engine/settings/buffer_settings.hpp"

namespace lockstep::engine {

KeySpecs BufferSettings::keys() {
  constexpr double kMost = 1e12;
  KeySpecs keys = {
      keys::integer("buffer.capacity", "4096",
                    "Maximum number of samples in a buffer: of a rank or, with train.lanes, of a lane", 1, kMost),
      keys::choice("buffer.keep", "ring",
                   "Samples that a full buffer keeps. ring = the latest; reservoir = a uniform random choice among all "
                   "pushed samples",
                   {"ring", "reservoir"}),
      keys::integer("buffer.min", "1", "Minimum number of samples in all buffers together before the first step", 1,
                    kMost)};
  for (KeySpec& key : keys) key = keys::read_by(std::move(key), "data.name", {"arrays"});
  return keys::titled("Samples that a program pushes, for programs that call Lockstep as a library", std::move(keys));
}

BufferSettings BufferSettings::from(const Section& buffer) {
  return {.capacity = buffer.integer("capacity"),
          .is_reservoir = buffer.text("keep") == "reservoir",
          .min = cited_integer(buffer, "min")};
}

}  // namespace lockstep::engine
