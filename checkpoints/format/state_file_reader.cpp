// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/format/envelope.hpp"
#include "checkpoints/format/hdf5.hpp"
#include "checkpoints/format/index.hpp"
#include "checkpoints/format/layout.hpp"
#include "checkpoints/format/state_file.hpp"
#include "core/system/memory.hpp"

namespace lockstep::checkpoints {

namespace {

constexpr std::size_t kMemoryAlignment = 64;  // alignment of arrays in memory
constexpr std::size_t kNamesShown = 4;

Envelope read_envelope(const std::string& path, const ExistingFile& file) {
  std::vector<std::byte> head(std::min<std::uint64_t>(file.size(), kEnvelopeBytes));
  file.read(0, head);
  return parse_envelope(path, head, file.size());
}

/// Memory for a file. Owned and not mapped: what was checked must not change under us, and a file that another process
/// cuts off later must not become a SIGBUS.
std::shared_ptr<std::byte> allocate(const std::string& path, std::uint64_t bytes) {
  constexpr std::size_t kPage = 4096;
  if (auto memory = aligned_memory(bytes, kPage)) return memory;
  throw CheckpointError(path, "not enough memory for its " + std::to_string(bytes) + " bytes").as(CheckpointFault::io);
}

Index read_index(const std::string& path, const ExistingFile& file, const Envelope& envelope) {
  std::vector<std::byte> bytes(envelope.file_bytes - envelope.index_offset);
  file.read(envelope.index_offset, bytes);
  if (digest128(bytes) != envelope.index_digest) {
    throw CheckpointError(path, "it is damaged: bytes " + std::to_string(envelope.index_offset) + "-" +
                                    std::to_string(envelope.file_bytes - 1) + ", its index, differ from their digest");
  }
  auto index = Index::decode(bytes);
  if (!index) throw CheckpointError(path, "it is malformed: its index cannot be read");
  return *std::move(index);
}

FileContents read_head(const std::string& path, const ExistingFile& file) {
  FileContents head{.envelope = read_envelope(path, file), .index = {}, .pieces = {}};
  head.index = read_index(path, file, head.envelope);
  auto pieces = cut_into_pieces(head.index.places, kEnvelopeBytes, head.envelope.index_offset);
  if (!pieces || pieces->size() != head.index.digests.size()) {
    throw CheckpointError(path, "it is malformed: its index does not cover all bytes");
  }
  head.pieces = *std::move(pieces);
  return head;
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

/// "it is damaged: bytes 8192-9215 (array /model/params/w) and 3 more stretches differ from their digests"
std::string describe_damage(const std::vector<Piece>& damaged, const std::vector<ArrayLocation>& places,
                            bool all_zero) {
  std::string text = "it is damaged: bytes";
  for (std::size_t i = 0; i < damaged.size() && i < kNamesShown; ++i) {
    const Piece& piece = damaged[i];
    text += (i == 0 ? " " : ", ") + std::to_string(piece.offset) + "-" +
            std::to_string(piece.offset + piece.nbytes - 1) + " (" +
            (piece.array == kNoArray ? "HDF5 metadata" : "array " + places[piece.array].path) + ")";
  }
  if (damaged.size() > kNamesShown) text += " and " + std::to_string(damaged.size() - kNamesShown) + " more ranges";
  text += damaged.size() == 1 ? " differ from their digest" : " differ from their digests";
  if (all_zero) text += "; they are all zero, as after a write that never reached the disk";
  return text;
}

/// The pieces that differ from their digests, as several threads find them.
class Damage {
 public:
  void add(const Piece& piece, std::span<const std::byte> bytes) {
    const std::lock_guard<std::mutex> hold(mutex_);
    pieces_.push_back(piece);
    is_all_zero_ = is_all_zero_ && is_zero(bytes);
  }

  void throw_if_any(const std::string& path, const std::vector<ArrayLocation>& places) {
    if (pieces_.empty()) return;
    std::ranges::sort(pieces_, [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
    throw CheckpointError(path, describe_damage(pieces_, places, is_all_zero_));
  }

 private:
  std::mutex mutex_;
  std::vector<Piece> pieces_;
  bool is_all_zero_ = true;
};

/// Reads forward: small stretches come with those behind them, large ones go straight to where they belong.
class ForwardReader {
 public:
  ForwardReader(const ExistingFile& file, std::uint64_t end) : file_(file), end_(end) {}

  void read(std::uint64_t offset, std::span<std::byte> out) {
    if (out.size() >= kAheadBytes / 4) return file_.read(offset, out);
    if (offset < begin_ || offset + out.size() > begin_ + ahead_.size()) {
      begin_ = offset;
      ahead_.resize(std::min<std::uint64_t>(kAheadBytes, end_ - offset));
      file_.read(begin_, ahead_);
    }
    std::copy_n(ahead_.begin() + static_cast<std::ptrdiff_t>(offset - begin_), out.size(), out.begin());
  }

 private:
  static constexpr std::size_t kAheadBytes = std::size_t{256} << 10;

  const ExistingFile& file_;
  std::uint64_t end_;
  std::uint64_t begin_ = 0;
  std::vector<std::byte> ahead_;
};

/// The HDF5 part without the arrays' bytes.
std::unique_ptr<MemoryFile> read_metadata(const ExistingFile& file, const FileContents& head, Damage& damage) {
  auto memory = std::make_unique<MemoryFile>();
  memory->write(0, head.envelope.bytes());
  ForwardReader reader(file, head.envelope.file_bytes);
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < head.pieces.size(); ++i) {
    const Piece& piece = head.pieces[i];
    if (piece.array != kNoArray) continue;
    bytes.resize(piece.nbytes);
    reader.read(piece.offset, bytes);
    if (digest64(bytes) != head.index.digests[i]) damage.add(piece, bytes);
    memory->write(piece.offset, bytes);
  }
  memory->set_end(head.envelope.index_offset);
  return memory;
}

/// Reads the arrays' pieces, and checks each while it is in the processor's cache.
/// @param place_of  gives the memory for a piece's bytes, which may be a part of the buffer; none for one to be left
/// out
template <class PlaceOf>
void read_arrays(const ExistingFile& file, const FileContents& head, int threads, Damage& damage,
                 const PlaceOf& place_of) {
  std::vector<Piece> pieces;
  std::vector<std::uint64_t> digests;
  for (std::size_t i = 0; i < head.pieces.size(); ++i) {
    if (head.pieces[i].array == kNoArray) continue;
    pieces.push_back(head.pieces[i]);
    digests.push_back(head.index.digests[i]);
  }
  for_each_parallel_piece(pieces, threads, [&](std::size_t first, std::size_t last) {
    ForwardReader reader(file, head.envelope.file_bytes);
    std::vector<std::byte> buffer;
    for (std::size_t i = first; i < last; ++i) {
      const std::span<std::byte> bytes = place_of(pieces[i], buffer);
      if (bytes.empty()) continue;
      reader.read(pieces[i].offset, bytes);
      if (digest64(bytes) != digests[i]) damage.add(pieces[i], bytes);
    }
  });
}

/// The places where the arrays of a file go.
struct Room {
  std::vector<std::span<std::byte>> bytes;  ///< target of each place; a null pointer = the array is left out
  std::vector<char> is_read;                ///< whether this process reads the array, by place
  std::shared_ptr<std::byte> own;           ///< memory of the arrays without a target
};

Room room_for(const std::string& path, const std::vector<ArrayLocation>& places, const RestoreTargets& targets) {
  Room room{.bytes = std::vector<std::span<std::byte>>(places.size()),
            .is_read = std::vector<char>(places.size(), 1),
            .own = nullptr};
  std::vector<std::size_t> own;  // arrays without a target
  std::uint64_t own_bytes = 0;
  const auto rounded = [](std::uint64_t bytes) {
    return (bytes + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
  };
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i].first != kNoArray) continue;
    const auto target = targets.find(places[i].path);
    if (target != targets.end() && target->second.is_left_out) {
      room.is_read[i] = 0;
    } else if (target != targets.end() && places[i].nbytes > 0 && target->second.memory.size() == places[i].nbytes) {
      room.bytes[i] = target->second.memory;
      room.is_read[i] = target->second.is_read_here ? 1 : 0;
    } else {
      own.push_back(i);
      own_bytes += rounded(places[i].nbytes);
    }
  }
  room.own = allocate(path, own_bytes);
  std::byte* next = room.own.get();
  for (const std::size_t i : own) {
    room.bytes[i] = {next, places[i].nbytes};
    next += rounded(places[i].nbytes);
  }
  return room;
}

}  // namespace

Seal read_seal(const std::string& path) {
  const ExistingFile file(path);
  const Envelope envelope = read_envelope(path, file);
  return {envelope.step, envelope.index_digest};
}

Archive read_state_file(const std::string& path, std::uint64_t& step, const RestoreTargets& targets) {
  const ExistingFile file(path);
  const FileContents head = read_head(path, file);
  const auto& places = head.index.places;
  Damage damage;
  const auto metadata = read_metadata(file, head, damage);
  const Room room = room_for(path, places, targets);
  read_arrays(file, head, io_threads(), damage, [&](const Piece& piece, std::vector<std::byte>&) {
    const bool is_read = room.is_read[piece.array] != 0;
    return is_read ? room.bytes[piece.array].subspan(piece.offset - places[piece.array].offset, piece.nbytes)
                   : std::span<std::byte>();
  });
  damage.throw_if_any(path, places);
  step = head.envelope.step;
  return read_tree(path, *metadata, places, room.bytes, room.own);
}

std::uint64_t verify_state_file(const std::string& path, int threads) {
  const ExistingFile file(path);
  const FileContents head = read_head(path, file);
  Damage damage;
  const auto metadata = read_metadata(file, head, damage);
  read_arrays(file, head, threads, damage, [](const Piece& piece, std::vector<std::byte>& buffer) {
    buffer.resize(kPieceBytes);
    return std::span(buffer).first(piece.nbytes);
  });
  damage.throw_if_any(path, head.index.places);
  check_tree(path, *metadata, head.index.places);
  return head.envelope.step;
}

FileContents read_state_contents(const std::string& path) { return read_head(path, ExistingFile(path)); }

Archive read_state_groups(const std::string& path) {
  const ExistingFile file(path);
  const FileContents head = read_head(path, file);
  Damage damage;
  const auto metadata = read_metadata(file, head, damage);
  damage.throw_if_any(path, head.index.places);
  return read_tree_groups(path, *metadata, head.index.places);
}

std::optional<Array> read_state_array(const std::string& path, const std::string& name) {
  const ExistingFile file(path);
  const FileContents head = read_head(path, file);
  const auto& places = head.index.places;
  const auto place = std::ranges::find_if(places, [&](const ArrayLocation& p) { return p.path == name; });
  if (place == places.end()) return std::nullopt;
  const auto number = place->first == kNoArray ? static_cast<std::size_t>(place - places.begin()) : place->first;
  const std::shared_ptr<std::byte> memory = allocate(path, place->nbytes);
  const std::span<std::byte> bytes(memory.get(), place->nbytes);
  Damage damage;
  read_arrays(file, head, /*threads=*/1, damage, [&](const Piece& piece, std::vector<std::byte>&) {
    return piece.array == number ? bytes.subspan(piece.offset - place->offset, piece.nbytes) : std::span<std::byte>();
  });
  damage.throw_if_any(path, places);
  return Array{.dtype = place->dtype, .shape = place->shape, .bytes = bytes, .owner = memory};
}

}  // namespace lockstep::checkpoints
