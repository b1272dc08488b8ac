// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/format/envelope.hpp"
#include "checkpoints/format/index.hpp"
#include "checkpoints/format/layout.hpp"
#include "checkpoints/format/state_file.hpp"
#include "core/system/process.hpp"

namespace lockstep::checkpoints {

namespace {

/// Writes forward from some offset: small pieces are gathered, large ones go straight from where they are.
class ForwardWriter {
 public:
  ForwardWriter(NewFile& file, std::uint64_t offset) : file_(file), offset_(offset) { gathered_.reserve(kGatherBytes); }

  void write(std::span<const std::byte> bytes) {
    if (gathered_.size() + bytes.size() > kGatherBytes) flush();
    if (bytes.size() < kGatherBytes / 4) {
      gathered_.insert(gathered_.end(), bytes.begin(), bytes.end());
      return;
    }
    flush();
    file_.write(offset_, bytes);
    offset_ += bytes.size();
  }

  void flush() {
    file_.write(offset_, gathered_);
    offset_ += gathered_.size();
    gathered_.clear();
  }

 private:
  static constexpr std::size_t kGatherBytes = std::size_t{1} << 20;

  NewFile& file_;
  std::uint64_t offset_;
  std::vector<std::byte> gathered_;
};

/// The entries of the table for each array, from the statistics and digests of its pieces in order.
std::vector<Summary> summarize(const std::vector<ArrayLocation>& places, const std::vector<Piece>& pieces,
                               const std::vector<std::uint64_t>& digests,
                               const std::vector<StatisticsSum>& statistics) {
  std::vector<StatisticsSum> sums(places.size());
  std::vector<std::vector<std::uint64_t>> digests_of(places.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].array == kNoArray) continue;
    sums[pieces[i].array].add(statistics[i]);
    digests_of[pieces[i].array].push_back(digests[i]);
  }
  std::vector<Summary> summaries(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::size_t first = places[i].first == kNoArray ? i : places[i].first;
    summaries[i] = {digest_of_pieces(digests_of[first]), sums[first].result()};
  }
  return summaries;
}

std::vector<Piece> pieces_of(const Layout& layout) {
  auto pieces = cut_into_pieces(layout.places, kEnvelopeBytes, layout.metadata->end());
  if (!pieces) throw CheckpointError("HDF5 stored two arrays in overlapping ranges");
  return *std::move(pieces);
}

}  // namespace

Archive archive_part(const Archive& archive, FilePart part) {
  Archive result;
  if (part.number == 0) {
    for (const std::string& path : archive.group_paths()) result.add_group(path);
    for (const auto& [name, value] : archive.attributes_of("/")) result.set("/", name, value);
    for (const std::string& path : archive.group_paths()) {
      for (const auto& [name, value] : archive.attributes_of(path)) result.set(path, name, value);
    }
  }
  std::uint64_t total = 0;
  for (const std::string& path : archive.array_paths()) {
    if (archive.first_path_of(path).empty()) total += archive.array(path).bytes.size();
  }
  std::uint64_t before = 0;
  for (const std::string& path : archive.array_paths()) {
    const std::string& first = archive.first_path_of(path);
    const Array& array = archive.array(path);
    if (!first.empty()) {
      if (result.has(first)) result.link(path, first);
      continue;
    }
    // The part in whose share of the bytes the array's first byte lies.
    const auto position = total == 0 ? 0 : static_cast<unsigned __int128>(before) * part.count / total;
    before += array.bytes.size();
    if (std::min<std::uint64_t>(static_cast<std::uint64_t>(position), part.count - 1) != part.number) continue;
    result.put(path, array);
    for (const auto& [name, value] : archive.attributes_of(path)) result.set(path, name, value);
  }
  return result;
}

Seal write_state_file(const std::string& path, std::int64_t step, const Archive& archive, FilePart part, int threads) {
  Layout layout = lay_out(archive);
  const std::vector<Piece> pieces = pieces_of(layout);
  Index index;
  index.places = std::move(layout.places);
  index.summaries.resize(index.places.size());
  index.digests.resize(pieces.size());
  std::vector<StatisticsSum> statistics(pieces.size());

  Envelope envelope;
  envelope.step = static_cast<std::uint64_t>(step);
  envelope.shard = part.number;
  envelope.shards = part.count;
  envelope.index_offset = layout.metadata->end();
  envelope.file_bytes = envelope.index_offset + index.encode().size();
  const std::string program = "lockstep " + version();
  std::copy(program.begin(), program.end(), envelope.writer.begin());
  seal(envelope);

  NewFile file(path);
  file.reserve(envelope.file_bytes);
  file.write(0, envelope.bytes());  // not committed: a reader can see that the writer was interrupted

  for_each_parallel_piece(pieces, threads, [&](std::size_t first, std::size_t last) {
    if (first == last) return;
    ForwardWriter writer(file, pieces[first].offset);
    std::vector<std::byte> metadata;
    for (std::size_t i = first; i < last; ++i) {
      const Piece& piece = pieces[i];
      std::span<const std::byte> bytes;
      if (piece.array == kNoArray) {
        metadata.resize(piece.nbytes);
        layout.metadata->read(piece.offset, metadata);
        bytes = metadata;
      } else {
        const ArrayLocation& place = index.places[piece.array];
        bytes = archive.array(place.path).bytes.subspan(piece.offset - place.offset, piece.nbytes);
        statistics[i].add(place.dtype, bytes);
      }
      index.digests[i] = digest64(bytes);
      writer.write(bytes);  // while it is still in the processor's cache
    }
    writer.flush();
  });
  index.summaries = summarize(index.places, pieces, index.digests, statistics);
  const std::vector<std::byte> encoded = index.encode();
  file.write(envelope.index_offset, encoded);

  envelope.flags = kCommittedFlag;
  envelope.index_digest = digest128(encoded);
  seal(envelope);
  file.write(0, envelope.bytes());
  file.sync();  // once is enough: if the envelope reaches the disk first, the digests differ
  file.close();
  return {envelope.step, envelope.index_digest};
}

}  // namespace lockstep::checkpoints
