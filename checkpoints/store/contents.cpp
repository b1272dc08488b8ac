// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/store/contents.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>

#include "checkpoints/format/state_file.hpp"
#include "checkpoints/store/folder.hpp"

namespace lockstep::checkpoints {

namespace {

void append_arrays(std::vector<ArrayInfo>& arrays, const Trailer& trailer) {
  for (std::size_t i = 0; i < trailer.places.size(); ++i) {
    const Place& place = trailer.places[i];
    arrays.push_back({.path = place.path,
                      .dtype = place.dtype,
                      .shape = place.shape,
                      .nbytes = place.nbytes,
                      .digest = hex_of(trailer.summaries[i].digest),
                      .statistics = trailer.summaries[i].statistics,
                      .first_path = place.first == kNoArray ? "" : trailer.places[place.first].path});
  }
}

}  // namespace

Contents read_contents(const std::string& path) {
  Contents contents;
  std::vector<std::uint64_t> digests;
  for (const std::string& file : state_files(path)) {
    const auto [envelope, trailer] = read_state_contents(file);
    contents.step = static_cast<std::int64_t>(envelope.step);
    contents.writer =
        std::string(envelope.writer.data(),
                    std::find(envelope.writer.begin(), envelope.writer.end(), '\0') - envelope.writer.begin());
    contents.file_bytes += envelope.file_bytes;
    append_arrays(contents.arrays, trailer);
    digests.insert(digests.end(), {envelope.trailer_digest.low, envelope.trailer_digest.high});
    contents.digest = hex_of(digests.size() == 2 ? envelope.trailer_digest : digest_of_pieces(digests));
  }
  return contents;
}

Archive read_groups(const std::string& path) { return read_state_groups(state_files(path).front()); }

Array read_array(const std::string& path, const std::string& array) {
  for (const std::string& file : state_files(path)) {
    if (auto found = read_state_array(file, array)) return *std::move(found);
  }
  throw CheckpointError(path, array, "there is no such array");
}

std::string array_digest(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> digests;
  for (std::size_t begin = 0; begin < bytes.size(); begin += kPieceBytes) {
    digests.push_back(digest64(bytes.subspan(begin, std::min(kPieceBytes, bytes.size() - begin))));
  }
  return hex_of(digest_of_pieces(digests));
}

}  // namespace lockstep::checkpoints
