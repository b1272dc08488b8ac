// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/session.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::embed {

/// The kinds of letters between producers and ranks that train.
enum class LetterKind {
  samples,  ///< producer: its number is the lane, -1 = none
  request,  ///< producer: wants weights; nothing in it
  closed,   ///< producer: its last letter; its number is that of dropped samples
  weights,  ///< its number is their step
  refusal,  ///< instead of weights; the text says why
  ended     ///< a rank that trained: no letter is read any more; the text says why
};

/// The content of a letter.
struct Letter {
  std::int64_t number = 0;
  std::string text = {};
  SampleTensors tensors = {};  ///< host memory
};

using LetterBytes = std::vector<std::byte>;

/// The bytes of a letter, for a process of the same program.
std::shared_ptr<const LetterBytes> packed(const Letter& letter);
/// The letter of these bytes, whose tensors share memory with them.
Letter unpacked(LetterBytes bytes);

/// The bytes of the elements of all tensors.
std::int64_t bytes_of(const SampleTensors& tensors);

}  // namespace lockstep::embed
