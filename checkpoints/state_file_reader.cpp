// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

#include "disk.hpp"
#include "envelope.hpp"
#include "layout.hpp"
#include "memory_file.hpp"
#include "state_file.hpp"
#include "trailer.hpp"

namespace lockstep::checkpoints {

namespace {

constexpr std::uint64_t kReadBytes = std::uint64_t{1} << 20;
constexpr std::size_t kNamesShown = 4;

Envelope read_envelope(const std::string& path, const ExistingFile& file) {
  std::vector<std::byte> head(std::min<std::uint64_t>(file.size(), kEnvelopeBytes));
  file.read(0, head);
  return parse_envelope(path, head, file.size());
}

/// Memory for a file. Owned and not mapped: what was checked must not change under us, and a file that somebody cuts
/// off later must not become a SIGBUS.
std::shared_ptr<std::byte> allocate(const std::string& path, std::uint64_t bytes) {
  constexpr std::size_t kPage = 4096;
  void* memory = bytes < PTRDIFF_MAX - kPage ? std::aligned_alloc(kPage, (bytes + kPage) / kPage * kPage) : nullptr;
  if (memory == nullptr)
    throw CheckpointError(path, "no memory for its " + std::to_string(bytes) + " bytes").as(CheckpointFault::io);
  return {static_cast<std::byte*>(memory), [](std::byte* pointer) { std::free(pointer); }};
}

/// The digests of a file that is still to be read.
struct Index {
  Envelope envelope;
  Trailer trailer;
  std::vector<Piece> pieces;
};

Trailer read_trailer(const std::string& path, const ExistingFile& file, const Envelope& envelope) {
  std::vector<std::byte> bytes(envelope.file_bytes - envelope.trailer_offset);
  file.read(envelope.trailer_offset, bytes);
  if (digest128(bytes) != envelope.trailer_digest) {
    throw CheckpointError(path, "it is damaged: bytes " + std::to_string(envelope.trailer_offset) + "-" +
                                    std::to_string(envelope.file_bytes - 1) +
                                    ", its table of digests, differ from their digest");
  }
  auto trailer = Trailer::decode(bytes);
  if (!trailer) throw CheckpointError(path, "it is malformed: its table of digests cannot be read");
  return *std::move(trailer);
}

Index read_index(const std::string& path, const ExistingFile& file) {
  Index index{.envelope = read_envelope(path, file), .trailer = {}, .pieces = {}};
  index.trailer = read_trailer(path, file, index.envelope);
  auto pieces = cut_into_pieces(index.trailer.places, kEnvelopeBytes, index.envelope.trailer_offset);
  if (!pieces || pieces->size() != index.trailer.digests.size()) {
    throw CheckpointError(path, "it is malformed: its table of digests does not cover its bytes");
  }
  index.pieces = *std::move(pieces);
  return index;
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

/// "it is damaged: bytes 8192-9215 (array /model/params/w) and 3 more stretches differ from their digests"
std::string describe_damage(const std::vector<Piece>& damaged, const std::vector<Place>& places, bool all_zero) {
  std::string text = "it is damaged: bytes";
  for (std::size_t i = 0; i < damaged.size() && i < kNamesShown; ++i) {
    const Piece& piece = damaged[i];
    text += (i == 0 ? " " : ", ") + std::to_string(piece.offset) + "-" +
            std::to_string(piece.offset + piece.nbytes - 1) + " (" +
            (piece.array == kNoArray ? "HDF5 metadata" : "array " + places[piece.array].path) + ")";
  }
  if (damaged.size() > kNamesShown) text += " and " + std::to_string(damaged.size() - kNamesShown) + " more stretches";
  text += damaged.size() == 1 ? " differ from their digest" : " differ from their digests";
  if (all_zero) text += "; they are all zero, as after a write that never reached the disk";
  return text;
}

/// Reads the HDF5 part and checks each piece while it is in the processor's cache.
void read_checked(const std::string& path, const ExistingFile& file, const Trailer& trailer,
                  const std::vector<Piece>& pieces, std::span<std::byte> content) {
  std::vector<Piece> damaged;
  bool all_zero = true;
  std::uint64_t loaded = kEnvelopeBytes;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    if (loaded < piece.offset + piece.nbytes) {
      const std::uint64_t count =
          std::min(std::max(kReadBytes, piece.offset + piece.nbytes - loaded), content.size() - loaded);
      file.read(loaded, content.subspan(loaded, count));
      loaded += count;
    }
    const auto bytes = content.subspan(piece.offset, piece.nbytes);
    if (digest64(bytes) == trailer.digests[i]) continue;
    damaged.push_back(piece);
    all_zero = all_zero && is_zero(bytes);
  }
  if (!damaged.empty()) throw CheckpointError(path, describe_damage(damaged, trailer.places, all_zero));
}

}  // namespace

Seal read_seal(const std::string& path) {
  const ExistingFile file(path);
  const Envelope envelope = read_envelope(path, file);
  return {envelope.step, envelope.trailer_digest};
}

Archive read_state_file(const std::string& path, std::uint64_t& step) {
  const ExistingFile file(path);
  const Index index = read_index(path, file);
  const std::uint64_t end = index.envelope.trailer_offset;
  const std::shared_ptr<std::byte> memory = allocate(path, end);
  const std::span<std::byte> content(memory.get(), end);
  std::copy_n(index.envelope.bytes().begin(), kEnvelopeBytes, content.begin());
  read_checked(path, file, index.trailer, index.pieces, content);
  step = index.envelope.step;
  return read_tree(path, content, memory, index.trailer.places);
}

FileContents read_state_contents(const std::string& path) {
  const ExistingFile file(path);
  Index index = read_index(path, file);
  return {index.envelope, std::move(index.trailer)};
}

Archive read_state_groups(const std::string& path) {
  const ExistingFile file(path);
  const Index index = read_index(path, file);
  MemoryFile memory;
  memory.write(0, index.envelope.bytes());
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < index.pieces.size(); ++i) {
    const Piece& piece = index.pieces[i];
    if (piece.array != kNoArray) continue;
    bytes.resize(piece.nbytes);
    file.read(piece.offset, bytes);
    if (digest64(bytes) != index.trailer.digests[i]) {
      throw CheckpointError(path, describe_damage({piece}, index.trailer.places, is_zero(bytes)));
    }
    memory.write(piece.offset, bytes);
  }
  memory.set_end(index.envelope.trailer_offset);
  return read_tree_groups(path, memory, index.trailer.places);
}

std::optional<Array> read_state_array(const std::string& path, const std::string& name) {
  const ExistingFile file(path);
  const Index index = read_index(path, file);
  const auto& places = index.trailer.places;
  const auto place = std::find_if(places.begin(), places.end(), [&](const Place& p) { return p.path == name; });
  if (place == places.end()) return std::nullopt;
  const auto number = place->first == kNoArray ? static_cast<std::size_t>(place - places.begin()) : place->first;
  const std::shared_ptr<std::byte> memory = allocate(path, place->nbytes);
  const std::span<std::byte> bytes(memory.get(), place->nbytes);
  file.read(place->offset, bytes);
  std::vector<Piece> damaged;
  bool all_zero = true;
  for (std::size_t i = 0; i < index.pieces.size(); ++i) {
    const Piece& piece = index.pieces[i];
    if (piece.array != number) continue;
    const auto part = bytes.subspan(piece.offset - place->offset, piece.nbytes);
    if (digest64(part) == index.trailer.digests[i]) continue;
    damaged.push_back(piece);
    all_zero = all_zero && is_zero(part);
  }
  if (!damaged.empty()) throw CheckpointError(path, describe_damage(damaged, places, all_zero));
  return Array{.dtype = place->dtype, .shape = place->shape, .bytes = bytes, .owner = memory};
}

}  // namespace lockstep::checkpoints
