// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "data/fields/field_series.hpp"

// Files of one data set should agree in more than shapes and names.
namespace lockstep::data {

/// Compares the coordinates and units of a file with those of the samples.
/// @param first    the file whose units count
/// @param space    that of the samples, with the coordinates of a first file
/// @param space_of path of this file
/// @return       what differs, a sentence each without the file; empty = they agree, or say nothing
/// @throws DataError  an axis runs the other way, so that its points would be exchanged
std::vector<std::string> differences_in(const arrays::ArrayFile& file, const FieldFile& described,
                                        const FieldFile& first, const SampleSpace& space, const std::string& space_of);

/// The same of the times of inputs and of targets in another file.
std::vector<std::string> differences_of_times(const FieldPair& pair);

/// The letters of an array with named axes: those of the axes of space that have the same names, and n, t and c by
/// their usual names. Empty if axes have no names, or not each axis of space occurs once.
std::string letters_by_names(const arrays::ArrayInfo& array, const SampleSpace& space);

}  // namespace lockstep::data
