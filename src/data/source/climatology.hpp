// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>

#include <memory>
#include <string>

#include "core/keys/cited.hpp"

namespace lockstep::data {

/// A data set whose targets can be compared with a climatology.
class ClimatologyDataset {
 public:
  virtual ~ClimatologyDataset() = default;
  /// The same samples with one more value, "climatology": what is usual at the times of the targets.
  /// @param choice  FILE:VARIABLE
  /// @throws ConfigError, DataError  the fields in the file do not fit the targets, or the targets have no times
  virtual std::shared_ptr<const Dataset> with_climatology(const Cited<std::string>& choice) const = 0;
};

}  // namespace lockstep::data
