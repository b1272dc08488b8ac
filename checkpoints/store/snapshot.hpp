// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <cstddef>
#include <memory>

namespace lockstep::checkpoints {

/// Memory for a copy of an archive's arrays, so that it can be written while the originals change. It is kept from one
/// copy to the next: only the first one pays for getting the pages.
class Snapshot {
 public:
  /// The same tree over copies of the arrays, which are valid until the next call. Stable arrays are not copied, and
  /// can arrive later than the result.
  /// @throws std::bad_alloc  there is no memory for it
  Archive copy(const Archive& archive);

 private:
  std::shared_ptr<std::byte> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace lockstep::checkpoints
