// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>

#include <memory>

namespace lockstep::data {

/// A run of tokens. Every member may be called from several threads at once.
class TokenRun {
 public:
  virtual ~TokenRun() = default;
  virtual std::int64_t size() const = 0;
  /// Copies tokens [begin, begin + out.size()).
  /// @throws DataError  a token is outside the vocabulary
  virtual void read(std::int64_t begin, std::span<std::int64_t> out) const = 0;
  virtual std::uint64_t digest() const = 0;
  virtual const std::string& path() const = 0;  ///< path of the file the tokens come from
};

/// The division of a text into samples of `block` inputs, with the next token as the target of each.
enum class Cut {
  every_start,  ///< a sample begins at every token: for training
  end_to_end,   ///< every token but the run's first is a target exactly once: for validation. The last sample is moved
                ///< back to end with the run, and the targets that it shares with the one before are kIgnored
};

/// The samples of a run: input and target [block] int64.
/// @param vocabulary  number of tokens there are
/// @throws DataError  the run has no block + 1 tokens
std::shared_ptr<const Dataset> make_windows(std::shared_ptr<const TokenRun> run, Cut cut, std::int64_t block,
                                            std::int64_t vocabulary);

/// The declaration of data.block.
KeySpec block_key();

}  // namespace lockstep::data
