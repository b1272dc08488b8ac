// SPDX-License-Identifier: BSD-3-Clause
// What `trainer data` prints of arrays, as text and as JSON.
#pragma once

#include <string>

#include "trainer/data/field_survey.hpp"

namespace lockstep::trainer {

struct FieldReport {
  FieldSurvey survey;
  std::string statistics = {};  ///< the text of statistics.json; "" = they are not known
  /// Origin of the statistics: "computed", "kept in data.cache", or the value of data.statistics.
  std::string origin = {};
  bool are_counted = false;  ///< the statistics count the values of these files
};

std::string fields_text(const FieldReport& report);
std::string fields_json(const FieldReport& report);

/// "chunks [1, 16, 64] of 4 KiB, shuffle, deflate; 1.2 MiB of 2 MiB".
std::string storage_text(const StorageFacts& storage);
std::string storage_json(const StorageFacts& storage);

}  // namespace lockstep::trainer
