// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "arrays/array_file.hpp"

namespace lockstep::arrays {

/// The elements of a chunk, as they are stored but for filters. Null = it was never written.
using Chunk = std::shared_ptr<const std::vector<std::byte>>;

/// An array in chunks. Those at its edges have the size of the others.
struct ChunkedArray {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> chunk;  ///< shape of a chunk
  std::vector<std::byte> fill;      ///< an element of chunks that were never written
};

/// Gets the chunk with this first element.
using GetChunk = std::function<Chunk(const std::vector<std::int64_t>& first)>;

/// Reads a part of such an array as it is stored.
/// @param slab  inside of the array, with at least one element
void read_chunks(const GetChunk& get, const ChunkedArray& array, const Slab& slab, std::span<std::byte> out);

/// The identity of a chunk.
struct ChunkKey {
  std::uint64_t file = 0;  ///< number of an open file
  std::string array;
  std::vector<std::int64_t> first;

  auto operator<=>(const ChunkKey&) const = default;
};

/// The most recently used chunks of all files of this process. Thread-safe.
class ChunkCache {
 public:
  /// @return  null if it is not there
  Chunk find(const ChunkKey& key);
  void put(const ChunkKey& key, const Chunk& chunk);
  void forget(std::uint64_t file);
  void set_limit(std::size_t bytes);

 private:
  struct CachedChunk {
    ChunkKey key;
    Chunk chunk;
  };
  void shrink();

  std::mutex mutex_;
  std::size_t limit_ = std::size_t{64} << 20;
  std::size_t bytes_ = 0;
  std::list<CachedChunk> entries_;  ///< the most recently used one first
  std::map<ChunkKey, std::list<CachedChunk>::iterator> places_;
};

ChunkCache& chunk_cache();

}  // namespace lockstep::arrays
