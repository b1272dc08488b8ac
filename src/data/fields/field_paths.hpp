// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

// Paths of the files of data.name = fields.
namespace lockstep::data {

/// The files that a text names: paths separated by commas, in this order. A path with `*`, `?` or `**` (any folders),
/// or with alternatives in braces, `{a,b}`, stands for all matching files, sorted by their bytes. A folder stands for
/// the files of fields in it, also sorted.
/// @param cited  start of messages, see Section::cite
/// @throws DataError  a file does not exist, or nothing matches
std::vector<std::string> field_files(const std::string& text, const std::string& cited);

/// The folders or files of the splits; "" = there is none.
struct FieldPaths {
  std::string train;
  std::string val;
  std::string test;
};

/// `path`, or the splits in it if it is a folder with a folder `train`, itself or in its folder `data`. Validation has
/// the folder `valid`, `val` or `validation`.
FieldPaths field_splits(const std::string& path);

/// The files of the targets of these inputs: `text` names as many files, or contains `%`, which stands for the name of
/// each file of inputs without its ending.
/// @throws DataError  their number differs, or one does not exist
std::vector<std::string> target_files(const std::vector<std::string>& inputs, const std::string& text,
                                      const std::string& cited);

/// Takes the targets out of the files of a folder in which each file has a partner with "target" in place of "input" in
/// its name, as train_input.h5 and train_target.h5 of ClimSim.
/// @return  the targets in the order of the inputs, which stay in `files`; empty = not all files are such pairs
std::vector<std::string> take_targets(std::vector<std::string>& files);

}  // namespace lockstep::data
