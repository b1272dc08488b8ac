// SPDX-License-Identifier: BSD-3-Clause
// Facts about the arrays of data.name = fields, of which `trainer data` reports.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays/array_file.hpp"
#include "data/fields/field_chunks.hpp"
#include "data/fields/field_dataset.hpp"

namespace lockstep::trainer {

/// The storage of an array in a file.
struct StorageFacts {
  std::string layout;                 ///< that of arrays::ArrayStorage
  std::vector<std::int64_t> chunk;    ///< shape of a chunk; empty = not chunked
  double chunk_bytes = 0;             ///< unpacked
  std::vector<std::string> filters;   ///< the first one was applied first
  double bytes = 0;                   ///< unpacked bytes of the array
  std::optional<double> stored = {};  ///< bytes in the file; none = unknown
};
StorageFacts storage_of(const arrays::ArrayFile& file, const arrays::ArrayInfo& array);

/// An array of the first file of the training part.
struct FieldArray {
  std::string file;
  data::FieldVariable variable;
  std::vector<std::string> axis_units = {};  ///< those of the coordinates of each stored axis; "" = unknown
  bool is_input = false;
  bool is_target = false;
  StorageFacts storage;
};

/// The windows of a split.
struct FieldSplit {
  std::string name;
  std::int64_t files = 0;
  std::vector<std::string> too_short = {};  ///< files in which no window fits
  std::int64_t trajectories = 0;
  std::int64_t steps = 0;         ///< steps of all trajectories
  std::int64_t windows = 0;       ///< number of samples
  std::int64_t left_at_gaps = 0;  ///< windows that would cross a gap of time
};

struct FieldTimes {
  std::string first;
  std::string last;
  double step = 0;  ///< the commonest one in seconds; 0 = there is one time
  std::int64_t gaps = 0;
  std::string first_gap = {};  ///< the last time before the first gap; "" = none
};

/// Keys that decide how much is read.
struct ReadingKeys {
  bool is_random = true;
  double chunk_cache_mb = 64;
  std::int64_t open_files = 64;
  std::string padding = {};  ///< model.padding
};

struct FieldSurvey {
  std::vector<FieldSplit> splits = {};
  data::WindowRule rule;
  std::vector<std::int64_t> input_shape;
  std::vector<std::int64_t> target_shape = {};  ///< empty = no target
  std::vector<std::string> inputs;              ///< names of the input channels
  std::vector<FieldArray> arrays;
  data::SampleSpace space;
  std::optional<FieldTimes> times = {};
  double sample_bytes = 0;  ///< stored numbers of a sample
  data::ChunkCost chunks;
  std::int64_t values_per_channel = 0;  ///< stored numbers of a channel of the training part, with gaps
  std::vector<std::string> warnings = {};
};

/// The splits by name; null = there is none.
using FieldParts = std::vector<std::pair<std::string, const data::FieldDataset*>>;

/// @param parts  the first one is the training part
/// @throws DataError  the first file cannot be read
FieldSurvey survey_fields(const FieldParts& parts, const ReadingKeys& keys);

}  // namespace lockstep::trainer
