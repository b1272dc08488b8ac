// SPDX-License-Identifier: BSD-3-Clause
#include "trailer.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "limits.hpp"

namespace lockstep::checkpoints {

namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;

void append(std::vector<std::byte>& out, const void* bytes, std::size_t count) {
  const auto* first = static_cast<const std::byte*>(bytes);
  out.insert(out.end(), first, first + count);
}

void append(std::vector<std::byte>& out, std::uint64_t value) { append(out, &value, sizeof value); }

/// Takes values off the front; after the first that is not there all is empty and is_good() false.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : rest_(bytes) {}

  std::uint64_t number() {
    std::uint64_t value = 0;
    const auto bytes = take(sizeof value);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::string text(std::uint64_t count) {
    const auto bytes = take(count);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  /// A count of things that take at least `least_bytes` each.
  std::uint64_t count(std::size_t least_bytes) {
    const std::uint64_t value = number();
    is_good_ = is_good_ && value <= rest_.size() / least_bytes;
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

void append_pieces(std::vector<Piece>& pieces, std::uint64_t begin, std::uint64_t end, std::size_t array) {
  for (; begin < end; begin += kPieceBytes) pieces.push_back({begin, std::min(kPieceBytes, end - begin), array});
}

}  // namespace

std::vector<std::byte> Trailer::encode() const {
  std::vector<std::byte> out;
  append(out, places.size());
  for (const Place& place : places) {
    append(out, place.offset);
    append(out, place.nbytes);
    append(out, place.path.size());
    append(out, place.path.data(), place.path.size());
  }
  append(out, digests.size());
  append(out, digests.data(), digests.size() * sizeof(std::uint64_t));
  return out;
}

std::optional<Trailer> Trailer::decode(std::span<const std::byte> bytes) {
  Cursor cursor(bytes);
  Trailer trailer;
  trailer.places.resize(cursor.count(3 * sizeof(std::uint64_t)));
  for (Place& place : trailer.places) {
    place.offset = cursor.number();
    place.nbytes = cursor.number();
    place.path = cursor.text(cursor.number());
    if (!cursor.is_good() || !is_path(place.path)) return std::nullopt;
  }
  trailer.digests.resize(cursor.count(sizeof(std::uint64_t)));
  for (std::uint64_t& digest : trailer.digests) digest = cursor.number();
  if (!cursor.is_good() || !cursor.is_at_end()) return std::nullopt;
  return trailer;
}

std::optional<std::vector<Piece>> cut_into_pieces(const std::vector<Place>& places, std::uint64_t begin,
                                                  std::uint64_t end) {
  std::vector<std::size_t> order(places.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return places[a].offset < places[b].offset; });
  std::vector<Piece> pieces;
  for (const std::size_t index : order) {
    const Place& place = places[index];
    if (place.nbytes == 0) continue;
    if (place.offset < begin || place.offset > end || place.nbytes > end - place.offset) return std::nullopt;
    append_pieces(pieces, begin, place.offset, kNoArray);
    begin = place.offset + place.nbytes;
    append_pieces(pieces, place.offset, begin, index);
  }
  append_pieces(pieces, begin, end, kNoArray);
  return pieces;
}

}  // namespace lockstep::checkpoints
