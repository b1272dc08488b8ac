// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace lockstep::parallel {

/// The state that is discarded after an exception.
enum class GivenUp {
  step,       ///< Its operations are under way: ranks that came to different ones take all of them to their end.
  recording,  ///< Its operations were recorded in a graph and never ran: there is nothing to communicate.
};

}  // namespace lockstep::parallel
