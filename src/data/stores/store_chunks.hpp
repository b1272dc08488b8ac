// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/image.hpp>

#include <cstdint>
#include <optional>

namespace lockstep::data {

/// A store of images in chunks of files, see SampleChunks.
class StoreChunks {
 public:
  virtual ~StoreChunks() = default;
  /// The number of the chunk of an image; none = the images are not in chunks.
  virtual std::optional<std::int64_t> chunk_of(std::int64_t index) const = 0;
};

/// StoreChunks::chunk_of; none if the store has no chunks.
inline std::optional<std::int64_t> chunk_in(const ImageStore& store, std::int64_t index) {
  const auto* const chunks = dynamic_cast<const StoreChunks*>(&store);
  return chunks == nullptr ? std::nullopt : chunks->chunk_of(index);
}

}  // namespace lockstep::data
