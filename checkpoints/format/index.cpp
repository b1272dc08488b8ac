// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/format/index.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "checkpoints/format/names.hpp"
#include "checkpoints/format/transfer.hpp"
#include "core/system/in_threads.hpp"
#include "core/system/resources.hpp"

namespace lockstep::checkpoints {

namespace {

void append(std::vector<std::byte>& out, const void* bytes, std::size_t count) {
  const std::size_t end = out.size();
  out.resize(end + count);
  if (count > 0) std::memcpy(out.data() + end, bytes, count);
}

void append(std::vector<std::byte>& out, std::uint64_t value) { append(out, &value, sizeof value); }

/// Takes values off the front; after the first that is not there all is empty and is_good() false.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class Value>
  Value value() {
    Value value = {};
    const auto bytes = take(sizeof value);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string text(std::uint64_t count) {
    const auto bytes = take(count);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  /// A count of things that take at least `min_bytes` each.
  std::uint64_t count(std::size_t min_bytes) {
    const auto value = this->value<std::uint64_t>();
    is_good_ = is_good_ && value <= rest_.size() / min_bytes;
    return is_good_ ? value : 0;
  }
  bool is_good() const { return is_good_; }
  bool is_at_end() const { return rest_.empty(); }

 private:
  std::span<const std::byte> take(std::uint64_t count) {
    is_good_ = is_good_ && count <= rest_.size();
    if (!is_good_) return {};
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }

  std::span<const std::byte> rest_;
  bool is_good_ = true;
};

/// The entry of one array in the table, without its dimensions and its path.
struct Row {
  std::uint64_t offset = 0;
  std::uint64_t nbytes = 0;
  std::uint64_t dtype = 0;
  std::uint64_t first = 0;  // 0 = a separate array; else 1 + the index of the same array
  Digest128 digest;
  Statistics statistics;
  std::uint64_t dimensions = 0;
  std::uint64_t path_bytes = 0;
};
static_assert(sizeof(Row) == 8 * 15);

/// The place and summary that `row` stands for; its dimensions and path follow.
bool decode_row(Cursor& cursor, std::size_t index, ArrayLocation& place, Summary& summary) {
  const auto row = cursor.value<Row>();
  if (!cursor.is_good() || row.dtype >= kAllDTypes.size() || row.dimensions > kMaxDimensions) return false;
  place.offset = row.offset;
  place.nbytes = row.nbytes;
  place.dtype = kAllDTypes.at(row.dtype);
  place.first = row.first == 0 ? kNoArray : row.first - 1;
  for (std::uint64_t i = 0; i < row.dimensions; ++i) place.shape.push_back(cursor.value<std::int64_t>());
  place.path = cursor.text(row.path_bytes);
  summary = {row.digest, row.statistics};
  const bool is_first_known = row.first <= index;  // a second name comes after the first
  return cursor.is_good() && is_first_known && is_path(place.path) && nbytes_of(place.dtype, place.shape) == row.nbytes;
}

void append_pieces(std::vector<Piece>& pieces, std::uint64_t begin, std::uint64_t end, std::size_t array) {
  for (; begin < end; begin += kPieceBytes)
    pieces.push_back({begin, std::min<std::uint64_t>(kPieceBytes, end - begin), array});
}

constexpr int kMaxThreads = 4;
constexpr std::uint64_t kMinPieceBytes = std::uint64_t{8}
                                         << 20;  // minimum size of a share, so that a thread is worth its start

/// The positions where the shares begin, and the end.
std::vector<std::size_t> borders_of(const std::vector<Piece>& pieces, int threads) {
  std::uint64_t total = 0;
  for (const Piece& piece : pieces) total += piece.nbytes;
  const auto count = std::clamp<std::uint64_t>(total / kMinPieceBytes, 1, static_cast<std::uint64_t>(threads));
  std::vector<std::size_t> borders = {0};
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    before += pieces[i].nbytes;
    if (borders.size() < count && before >= total / count * borders.size()) borders.push_back(i + 1);
  }
  borders.push_back(pieces.size());
  return borders;
}

}  // namespace

std::vector<std::byte> Index::encode() const {
  std::vector<std::byte> out;
  append(out, places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    const ArrayLocation& place = places[i];
    const Row row{.offset = place.offset,
                  .nbytes = place.nbytes,
                  .dtype = static_cast<std::uint64_t>(place.dtype),
                  .first = place.first == kNoArray ? 0 : place.first + 1,
                  .digest = summaries[i].digest,
                  .statistics = summaries[i].statistics,
                  .dimensions = place.shape.size(),
                  .path_bytes = place.path.size()};
    append(out, &row, sizeof row);
    append(out, place.shape.data(), place.shape.size() * sizeof(std::int64_t));
    append(out, place.path.data(), place.path.size());
  }
  append(out, digests.size());
  append(out, digests.data(), digests.size() * sizeof(std::uint64_t));
  return out;
}

std::optional<Index> Index::decode(std::span<const std::byte> bytes) {
  Cursor cursor(bytes);
  Index index;
  index.places.resize(cursor.count(sizeof(Row)));
  index.summaries.resize(index.places.size());
  for (std::size_t i = 0; i < index.places.size(); ++i) {
    if (!decode_row(cursor, i, index.places[i], index.summaries[i])) return std::nullopt;
  }
  index.digests.resize(cursor.count(sizeof(std::uint64_t)));
  for (std::uint64_t& digest : index.digests) digest = cursor.value<std::uint64_t>();
  if (!cursor.is_good() || !cursor.is_at_end()) return std::nullopt;
  return index;
}

std::optional<std::vector<Piece>> cut_into_pieces(const std::vector<ArrayLocation>& places, std::uint64_t begin,
                                                  std::uint64_t end) {
  std::vector<std::size_t> order(places.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return places[a].offset < places[b].offset; });
  std::vector<Piece> pieces;
  for (const std::size_t index : order) {
    const ArrayLocation& place = places[index];
    if (place.nbytes == 0 || place.first != kNoArray) continue;
    if (place.offset < begin || place.offset > end || place.nbytes > end - place.offset) return std::nullopt;
    append_pieces(pieces, begin, place.offset, kNoArray);
    begin = place.offset + place.nbytes;
    append_pieces(pieces, place.offset, begin, index);
  }
  append_pieces(pieces, begin, end, kNoArray);
  return pieces;
}

int io_threads() { return std::min(usable_processors(), kMaxThreads); }

void for_each_parallel_piece(const std::vector<Piece>& pieces, int threads,
                             const std::function<void(std::size_t first, std::size_t last)>& work) {
  const std::vector<std::size_t> borders = borders_of(pieces, threads);
  in_threads(static_cast<int>(borders.size()) - 1, [&](int share) {
    const auto first = static_cast<std::size_t>(share);
    work(borders[first], borders[first + 1]);
  });
}

}  // namespace lockstep::checkpoints
