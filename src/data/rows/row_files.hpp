// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/data/source.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrays/array_file.hpp"
#include "data/rows/row_array.hpp"

// The arrays of inputs and targets of data.name = hdf5 and npy.
namespace lockstep::data {

enum class ArrayFormat {
  hdf5,
  npy  ///< npy files of a folder, or npz files
};

/// The arrays of a split, one for each file.
struct RowPlaces {
  std::vector<ArrayPlace> inputs;
  std::vector<ArrayPlace> targets = {};       ///< empty = data.unlabeled
  std::vector<ArrayPlace> weights = {};       ///< empty = no data.weight_array, or data.unlabeled
  std::vector<std::string> class_names = {};  ///< the texts of the array class_names of the first file
};

/// The arrays of all splits; none = there is no such split.
struct RowParts {
  RowPlaces train;
  std::optional<RowPlaces> val = {};
  std::optional<RowPlaces> test = {};
  bool has_test_as_val = false;  ///< there is no validation part, so that test is used for it
};

/// Finds the files of data.path, data.val_path and data.test_path, and the arrays of the splits in them: by
/// data.input_array and data.target_array, else the first pair of usual names, such as images and labels. Weights have
/// the name data.weight_array. A split of a file is a group, or part of the name: train/x, train_x and x_train.
/// @throws ConfigError, DataError  a file is missing or of another format, or has no such arrays
RowParts find_rows(const Section& data, ArrayFormat format, arrays::OpenFiles& files);

}  // namespace lockstep::data
