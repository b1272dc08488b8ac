// SPDX-License-Identifier: BSD-3-Clause
#include "data/rows/row_array.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "arrays/input_file.hpp"
#include "core/text/text.hpp"
#include "data/source/hash.hpp"

namespace lockstep::data {

namespace {

constexpr std::uint64_t kMaxDeflation = 1032;                  // limit of deflate, as zlib documents
constexpr std::int64_t kCachedBytes = std::int64_t{64} << 20;  // arrays that stay in the memory of the system
constexpr std::int64_t kRowsOfDigest = 64;

std::string called_in(const ArrayPlace& place) {
  return place.array.empty() ? place.file : place.file + ": " + arrays::called(place.array);
}

}  // namespace

RowArray::RowArray(std::shared_ptr<arrays::OpenFiles> files, const std::vector<ArrayPlace>& places)
    : files_(std::move(files)) {
  for (const ArrayPlace& place : places) add(place);
}

void RowArray::add(const ArrayPlace& place) {
  const auto file = files_->get(place.file);
  Part part{.place = place, .info = file->find(place.array), .packing = {}};
  part.packing = arrays::packing_of(place.file, part.info);
  const std::vector<std::int64_t>& shape = part.info.shape;
  if (shape.empty())
    throw DataError(called_in(place), "is a single number; its first axis must be that of the samples");
  if (std::ranges::find(shape, 0) != shape.end()) {
    throw DataError(called_in(place), "has no samples: its shape is " + shape_text(shape));
  }
  if (parts_.empty()) {
    row_shape_.assign(shape.begin() + 1, shape.end());
    for (const std::int64_t size : row_shape_) row_numbers_ *= size;
  } else {
    require_like_first(part);
    part.begin = parts_.back().end;
    part.first_chunk = parts_.back().chunk_of(part.begin - 1) + 1;
  }
  part.end = part.begin + shape.front();
  parts_.push_back(std::move(part));
}

void RowArray::require_like_first(const Part& part) const {
  const Part& first = parts_.front();
  const std::vector<std::int64_t>& shape = part.info.shape;
  if (!std::ranges::equal(std::span(shape).subspan(1), row_shape_)) {
    throw DataError(called_in(part.place), "has the shape " + shape_text(shape) + ", but " + first.place.file +
                                               " has " + shape_text(first.info.shape) +
                                               "; the files must agree in all axes but the first");
  }
  if (part.info.type.kind == first.info.type.kind && part.info.type.bytes == first.info.type.bytes) return;
  throw DataError(called_in(part.place), "has " + arrays::name_of(part.info.type) + " numbers, but " +
                                             first.place.file + " has " + arrays::name_of(first.info.type) +
                                             "; the files must have one type");
}

std::vector<std::int64_t> RowArray::sizes() const {
  std::vector<std::int64_t> sizes;
  for (const Part& part : parts_) sizes.push_back(part.end - part.begin);
  return sizes;
}

const RowArray::Part& RowArray::part_of(std::int64_t index) const {
  return *std::ranges::upper_bound(parts_, index, {}, &Part::end);
}

template <class Call>
void RowArray::visit(std::int64_t begin, std::int64_t count, const Call& call) const {
  for (const std::int64_t end = begin + count; begin < end;) {
    const Part& part = part_of(begin);
    const std::int64_t here = std::min(end, part.end) - begin;
    call(part, begin, here);
    begin += here;
  }
}

void RowArray::read_part(const Part& part, std::int64_t begin, std::int64_t count, std::span<std::byte> out) const {
  arrays::Slab slab = arrays::whole(part.info);
  slab.start.front() = begin - part.begin;
  slab.count.front() = count;
  files_->get(part.place.file)->read(part.info, slab, out);
}

void RowArray::read(std::int64_t begin, std::int64_t count, std::span<std::byte> out) const {
  visit(begin, count, [&](const Part& part, std::int64_t first, std::int64_t rows) {
    const std::size_t bytes = static_cast<std::size_t>(rows) * row_bytes();
    read_part(part, first, rows, out.first(bytes));
    out = out.subspan(bytes);
  });
}

template <class Value>
void RowArray::read_values(std::int64_t begin, std::int64_t count, std::span<Value> out) const {
  thread_local std::vector<std::byte> stored;
  visit(begin, count, [&](const Part& part, std::int64_t first, std::int64_t rows) {
    stored.resize(static_cast<std::size_t>(rows) * row_bytes());
    read_part(part, first, rows, stored);
    const auto numbers = static_cast<std::size_t>(rows * row_numbers_);
    arrays::decode(part.packing, stored, out.first(numbers));
    out = out.subspan(numbers);
  });
}

void RowArray::read(std::int64_t begin, std::int64_t count, std::span<float> out) const {
  read_values(begin, count, out);
}

void RowArray::read(std::int64_t begin, std::int64_t count, std::span<double> out) const {
  read_values(begin, count, out);
}

std::string RowArray::place(std::int64_t index) const {
  const Part& part = part_of(index);
  const std::string separator = part.place.array.empty() ? ": sample " : ", sample ";
  return called_in(part.place) + separator + std::to_string(index - part.begin);
}

std::string RowArray::name(std::int64_t index) const {
  const Part& part = part_of(index);
  return std::filesystem::path(part.place.file).filename().string() + ":" + std::to_string(index - part.begin);
}

std::string RowArray::first_place() const { return called_in(first()); }

void RowArray::require_written() const {
  for (const Part& part : parts_) {
    const std::string& layout = part.info.storage.layout;
    if (layout == "virtual" || layout == "external") continue;  // the numbers are in other files
    std::error_code unknown;
    const std::uint64_t bytes = std::filesystem::file_size(part.place.file, unknown);
    const std::uint64_t stated = static_cast<std::uint64_t>(part.end - part.begin) * row_bytes();
    if (unknown || stated / kMaxDeflation <= bytes) continue;
    throw DataError(called_in(part.place), "states the shape " + shape_text(part.info.shape) +
                                               ", more than a file of " + std::to_string(bytes) +
                                               " bytes can hold; its numbers were never written, or it is damaged");
  }
}

std::string RowArray::chunk_note() const {
  for (const Part& part : parts_) {
    const arrays::ArrayStorage& storage = part.info.storage;
    const bool is_small = (part.end - part.begin) * static_cast<std::int64_t>(row_bytes()) <= kCachedBytes;
    if (storage.layout != "chunked" || is_small || storage.chunk.empty() || storage.chunk.front() <= 1) continue;
    if (storage.chunk == part.info.shape) continue;  // a member of an npz file, which stays in memory
    const std::string samples = std::to_string(storage.chunk.front());
    return called_in(part.place) + " has chunks of " + samples + " samples, so that a random order reads up to " +
           samples +
           " times as many bytes as it uses; set data.sampler = chunks, or store one sample per chunk, for example "
           "with h5repack -l";
  }
  return "";
}

std::int64_t RowArray::chunk_of(std::int64_t index) const { return part_of(index).chunk_of(index); }

std::int64_t RowArray::chunk_cost() const {
  std::int64_t cost = 0;
  for (const Part& part : parts_) {
    const std::int64_t others = std::min(part.samples_per_chunk(), part.end - part.begin) - 1;
    cost = std::max(cost, others * static_cast<std::int64_t>(row_bytes()));
  }
  return cost;
}

std::uint64_t RowArray::digest() const {
  std::uint64_t digest = hash_of({static_cast<std::uint64_t>(size()), static_cast<std::uint64_t>(type().kind),
                                  static_cast<std::uint64_t>(type().bytes)});
  for (const std::int64_t axis : row_shape_) digest = hash_of({digest, static_cast<std::uint64_t>(axis)});
  std::vector<std::byte> row(row_bytes());
  const std::int64_t rows = std::min(size(), kRowsOfDigest);
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t last = size() - 1;
    const std::int64_t steps = std::max<std::int64_t>(rows - 1, 1);
    read(last / steps * i + last % steps * i / steps, 1, row);
    digest = hash_of({digest, hash_of({reinterpret_cast<const std::uint8_t*>(row.data()), row.size()})});
  }
  return digest;
}

}  // namespace lockstep::data
