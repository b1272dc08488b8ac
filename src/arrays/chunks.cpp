// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/chunks.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

namespace lockstep::arrays {

namespace {

/// Elements of a slab along an axis that lie in one chunk.
struct AxisPart {
  std::int64_t first = 0;     ///< index of the first one in the slab
  std::int64_t count = 0;     ///< number of them
  std::int64_t in_chunk = 0;  ///< position of the first one in the chunk
};

/// @param begin  position of the chunk along the axis
AxisPart part_of_axis(const Slab& slab, std::size_t axis, std::int64_t begin, std::int64_t length) {
  const std::int64_t start = slab.start[axis], step = slab.step[axis];
  const std::int64_t first = begin <= start ? 0 : (begin - start + step - 1) / step;
  const std::int64_t end = std::min(slab.count[axis], (begin + length - start + step - 1) / step);
  return {.first = first, .count = end - first, .in_chunk = start + first * step - begin};
}

std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
  return strides;
}

/// The next index in row-major order.
/// @return  false after the last one
bool advance(std::vector<std::int64_t>& index, const std::vector<std::int64_t>& counts, std::size_t axes) {
  for (std::size_t axis = axes; axis-- > 0;) {
    if (++index[axis] < counts[axis]) return true;
    index[axis] = 0;
  }
  return false;
}

/// Copies the elements that a slab has in one chunk.
class ChunkCopier {
 public:
  ChunkCopier(const ChunkedArray& array, const Slab& slab, std::span<std::byte> out)
      : array_(array),
        slab_(slab),
        out_(out),
        chunk_strides_(strides_of(array.chunk)),
        out_strides_(strides_of(slab.count)) {}

  void copy(const Chunk& chunk, const std::vector<AxisPart>& parts) const {
    const std::size_t last = parts.size() - 1;
    std::vector<std::int64_t> counts, index(parts.size(), 0);
    for (const AxisPart& part : parts) counts.push_back(part.count);
    do {  // each row along the last axis
      std::int64_t from = 0, target = 0;
      for (std::size_t axis = 0; axis <= last; ++axis) {
        from += (parts[axis].in_chunk + index[axis] * slab_.step[axis]) * chunk_strides_[axis];
        target += (parts[axis].first + index[axis]) * out_strides_[axis];
      }
      copy_row(chunk, from, target, counts[last]);
    } while (advance(index, counts, last));
  }

 private:
  void copy_row(const Chunk& chunk, std::int64_t from, std::int64_t target, std::int64_t count) const {
    const std::size_t bytes = array_.fill.size();
    std::byte* place = out_.data() + static_cast<std::size_t>(target) * bytes;
    if (chunk == nullptr) {
      for (std::int64_t i = 0; i < count; ++i, place += bytes) std::memcpy(place, array_.fill.data(), bytes);
      return;
    }
    const std::byte* element = chunk->data() + static_cast<std::size_t>(from) * bytes;
    if (slab_.step.back() == 1) {
      std::memcpy(place, element, static_cast<std::size_t>(count) * bytes);
      return;
    }
    const std::size_t step = static_cast<std::size_t>(slab_.step.back()) * bytes;
    for (std::int64_t i = 0; i < count; ++i, place += bytes) {
      std::memcpy(place, element + static_cast<std::size_t>(i) * step, bytes);
    }
  }

  const ChunkedArray& array_;
  const Slab& slab_;
  std::span<std::byte> out_;
  std::vector<std::int64_t> chunk_strides_;
  std::vector<std::int64_t> out_strides_;
};

}  // namespace

void read_chunks(const GetChunk& get, const ChunkedArray& array, const Slab& slab, std::span<std::byte> out) {
  const std::size_t rank = array.shape.size();
  std::vector<std::int64_t> lowest, counts, index(rank, 0), first(rank);
  for (std::size_t axis = 0; axis < rank; ++axis) {
    lowest.push_back(slab.start[axis] / array.chunk[axis]);
    const std::int64_t end = slab.start[axis] + (slab.count[axis] - 1) * slab.step[axis];
    counts.push_back(end / array.chunk[axis] - lowest.back() + 1);
  }
  const ChunkCopier copier(array, slab, out);
  std::vector<AxisPart> parts(rank);
  do {
    bool has_elements = true;  // a step may leave out a whole chunk
    for (std::size_t axis = 0; axis < rank; ++axis) {
      first[axis] = (lowest[axis] + index[axis]) * array.chunk[axis];
      parts[axis] = part_of_axis(slab, axis, first[axis], array.chunk[axis]);
      has_elements = has_elements && parts[axis].count > 0;
    }
    if (has_elements) copier.copy(get(first), parts);
  } while (advance(index, counts, rank));
}

Chunk ChunkCache::get(const ChunkKey& key, const std::function<Chunk()>& make) {
  std::promise<Chunk> promise;
  {
    std::unique_lock hold(mutex_);
    if (const auto found = places_.find(key); found != places_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return entries_.front().chunk;
    }
    if (const auto found = in_progress_.find(key); found != in_progress_.end()) {
      const std::shared_future<Chunk> future = found->second;
      hold.unlock();
      return future.get();
    }
    in_progress_.emplace(key, promise.get_future().share());
  }
  try {
    Chunk chunk = make();
    {
      const std::lock_guard hold(mutex_);
      if (chunk != nullptr) put(key, chunk);
      in_progress_.erase(key);
    }
    promise.set_value(chunk);
    return chunk;
  } catch (...) {
    {
      const std::lock_guard hold(mutex_);
      in_progress_.erase(key);
    }
    promise.set_exception(std::current_exception());
    throw;
  }
}

void ChunkCache::put(const ChunkKey& key, const Chunk& chunk) {
  unpacked_ += chunk->size();
  if (chunk->size() > limit_ / sharers_ || places_.contains(key)) return;
  entries_.push_front({key, chunk});
  places_.emplace(key, entries_.begin());
  bytes_ += chunk->size();
  shrink();
}

void ChunkCache::forget(std::uint64_t file) {
  const std::lock_guard hold(mutex_);
  const ChunkKey from{.file = file, .array = "", .first = {}};
  for (auto place = places_.lower_bound(from); place != places_.end() && place->first.file == file;) {
    bytes_ -= place->second->chunk->size();
    entries_.erase(place->second);
    place = places_.erase(place);
  }
}

void ChunkCache::set_limit(std::size_t bytes) {
  const std::lock_guard hold(mutex_);
  limit_ = bytes;
  shrink();
}

void ChunkCache::set_sharers(int sharers) {
  const std::lock_guard hold(mutex_);
  sharers_ = static_cast<std::size_t>(std::max(sharers, 1));
  shrink();
}

void ChunkCache::shrink() {
  while (bytes_ > limit_ / sharers_) {
    bytes_ -= entries_.back().chunk->size();
    places_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

ChunkCache& chunk_cache() {
  static ChunkCache cache;
  return cache;
}

}  // namespace lockstep::arrays
