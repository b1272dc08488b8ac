// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "disk.hpp"
#include "envelope.hpp"
#include "layout.hpp"
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
  if (memory == nullptr) throw CheckpointError(path, "no memory for its " + std::to_string(bytes) + " bytes");
  return {static_cast<std::byte*>(memory), [](std::byte* pointer) { std::free(pointer); }};
}

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
  const Envelope envelope = read_envelope(path, file);
  const Trailer trailer = read_trailer(path, file, envelope);
  const auto pieces = cut_into_pieces(trailer.places, kEnvelopeBytes, envelope.trailer_offset);
  if (!pieces || pieces->size() != trailer.digests.size()) {
    throw CheckpointError(path, "it is malformed: its table of digests does not cover its bytes");
  }
  const std::shared_ptr<std::byte> memory = allocate(path, envelope.trailer_offset);
  const std::span<std::byte> content(memory.get(), envelope.trailer_offset);
  std::copy_n(envelope.bytes().begin(), kEnvelopeBytes, content.begin());
  read_checked(path, file, trailer, *pieces, content);
  step = envelope.step;
  return read_tree(path, content, memory, trailer.places);
}

}  // namespace lockstep::checkpoints
