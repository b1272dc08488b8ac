// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
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
  /// A chunk from the cache, or from make(). Threads that need a chunk at the same time wait for the one that makes it,
  /// so they must not hold what make() needs, such as an HdfSession.
  /// @throws  the error of make(), in all threads that wait
  Chunk get(const ChunkKey& key, const std::function<Chunk()>& make);
  void forget(std::uint64_t file);
  /// @param bytes  limit for `sharers` processes together
  void set_limit(std::size_t bytes);
  void set_sharers(int sharers);

  void count_used(std::size_t bytes) { used_ += bytes; }
  ChunkUse use() const { return {.unpacked = unpacked_, .used = used_}; }

 private:
  struct CachedChunk {
    ChunkKey key;
    Chunk chunk;
  };
  void put(const ChunkKey& key, const Chunk& chunk);
  void shrink();

  std::mutex mutex_;
  std::size_t limit_ = std::size_t{64} << 20;
  std::size_t sharers_ = 1;
  std::size_t bytes_ = 0;
  std::atomic<std::uint64_t> unpacked_ = 0;
  std::atomic<std::uint64_t> used_ = 0;
  std::list<CachedChunk> entries_;  ///< the most recently used one first
  std::map<ChunkKey, std::list<CachedChunk>::iterator> places_;
  std::map<ChunkKey, std::shared_future<Chunk>> in_progress_;
};

ChunkCache& chunk_cache();

}  // namespace lockstep::arrays
