// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <cstdint>
#include <string>

#include "core/keys/cited.hpp"

// Section `predict`.
namespace lockstep::trainer {

/// The form of the output file, by its suffix.
enum class PredictionForm {
  json_lines,
  csv,
  npy,
  netcdf  ///< netCDF-4, which is also HDF5
};

/// The order of the samples on the page.
enum class PageOrder { errors, uncertain, first };

struct PredictSettings {
  Cited<std::string> out = {};          ///< empty = the command line states it
  Cited<std::string> split = {"auto"};  ///< auto, train, val or test
  bool wants_features = false;
  Cited<std::int64_t> rollout = {0};  ///< forward passes of a rollout of fields; 0 = none
  std::int64_t top_k = 5;
  bool has_probabilities = false;  ///< whether the probabilities of all classes are there
  double threshold = 0.5;          ///< threshold of labels
  Cited<std::string> masks = {};   ///< folder of PNG files; empty = none
  Cited<std::string> page = {};    ///< HTML file; empty = none
  std::int64_t page_samples = 64;
  PageOrder page_order = PageOrder::errors;

  static KeySpecs keys();
  static PredictSettings from(const Section& predict);
};

/// @throws ConfigError  the file has another suffix than .jsonl, .csv, .npy, .nc and .h5
PredictionForm form_of(const Cited<std::string>& out);

}  // namespace lockstep::trainer
