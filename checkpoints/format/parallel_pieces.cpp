// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/format/parallel_pieces.hpp"

#include <algorithm>
#include <cstdint>

#include "checkpoints/format/transfer.hpp"
#include "core/system/in_threads.hpp"
#include "core/system/processors.hpp"

namespace lockstep::checkpoints {

namespace {

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
