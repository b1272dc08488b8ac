// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/store/checkpoint_index.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>

#include "checkpoints/format/state_file.hpp"
#include "checkpoints/store/folder.hpp"
#include "core/text/text.hpp"

namespace lockstep::checkpoints {

namespace {

void append_arrays(std::vector<IndexedArray>& arrays, const Index& index) {
  for (std::size_t i = 0; i < index.places.size(); ++i) {
    const ArrayLocation& place = index.places[i];
    arrays.push_back({.path = place.path,
                      .dtype = place.dtype,
                      .shape = place.shape,
                      .nbytes = place.nbytes,
                      .digest = hex_of(index.summaries[i].digest),
                      .statistics = index.summaries[i].statistics,
                      .first_path = place.first == kNoArray ? "" : index.places[place.first].path});
  }
}

/// The first element with a part that is not finite; their number when there is none.
std::int64_t first_nonfinite(const Array& array) {
  return with_numbers(array, [&](auto load, std::int64_t count) {
    std::int64_t number = 0;
    while (number < count && std::isfinite(static_cast<double>(load(number)))) ++number;
    return number / (is_complex(array.dtype) ? 2 : 1);
  });
}

}  // namespace

CheckpointIndex read_checkpoint_index(const std::string& path) {
  CheckpointIndex index;
  std::vector<std::uint64_t> digests;
  for (const std::string& file : state_files(path)) {
    const auto [envelope, part, pieces] = read_state_contents(file);
    index.step = static_cast<std::int64_t>(envelope.step);
    index.writer =
        std::string(envelope.writer.data(), std::ranges::find(envelope.writer, '\0') - envelope.writer.begin());
    index.file_bytes += envelope.file_bytes;
    append_arrays(index.arrays, part);
    digests.insert(digests.end(), {envelope.index_digest.low, envelope.index_digest.high});
    index.digest = hex_of(digests.size() == 2 ? envelope.index_digest : digest_of_pieces(digests));
  }
  return index;
}

Archive read_groups(const std::string& path) { return read_state_groups(state_files(path).front()); }

Array read_array(const std::string& path, const std::string& array) {
  for (const std::string& file : state_files(path)) {
    if (auto found = read_state_array(file, array)) return *std::move(found);
  }
  throw CheckpointError(path, array, "the array does not exist");
}

std::string array_digest(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> digests;
  for (std::size_t begin = 0; begin < bytes.size(); begin += kPieceBytes) {
    digests.push_back(digest64(bytes.subspan(begin, std::min(kPieceBytes, bytes.size() - begin))));
  }
  return hex_of(digest_of_pieces(digests));
}

std::string nonfinite_in(const std::string& path, const std::string& group) {
  std::string words;
  std::size_t others = 0;
  for (const IndexedArray& info : read_checkpoint_index(path).arrays) {
    const bool counts = info.path.starts_with(group + "/") && info.first_path.empty();
    if (!counts || info.statistics.nans + info.statistics.infs == 0) continue;
    if (!words.empty()) {
      ++others;
      continue;
    }
    const Array array = read_array(path, info.path);
    words = info.path + " holds " + std::to_string(info.statistics.nans) + " NaN and " +
            std::to_string(info.statistics.infs) + " infinite elements, the first at " +
            shape_text(position_of(first_nonfinite(array), array.shape));
  }
  return others == 0 ? words : words + ", and " + std::to_string(others) + " more arrays likewise";
}

}  // namespace lockstep::checkpoints
