// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace lockstep::parallel {

/// An ability of a reducer: in a step, some ranks have no inputs. Ranks with inputs run forward and backward as usual.
/// How the ranks learn which of them have inputs is up to the caller, see Join.
class UnevenRanks {
 public:
  virtual ~UnevenRanks() = default;
  /// Takes part in one synchronized step with zero gradients, instead of its forward and backward. Afterwards, this
  /// rank has the averaged gradients, too. Collective: the other ranks run a backward.
  virtual void contribute_zeros() = 0;
  /// Divides sums over ranks by `ranks` from the next backward on, such as the number of ranks with inputs. On every
  /// rank alike; not collective.
  virtual void set_divisor(int ranks) = 0;
};

}  // namespace lockstep::parallel
