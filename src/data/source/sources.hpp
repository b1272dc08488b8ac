// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/source.hpp>

namespace lockstep::data {

Source digits_source();
Source idx_source();
Source text_source();
Source tokens_source();
Source folder_source();
Source list_source();
Source cifar10_source();
Source cifar100_source();
Source synthetic_source();
Source fields_source();
Source hdf5_source();
Source npy_source();
Source arrays_source();

/// Whether the arrays of a source decide if its samples are images: Source::open_images returns no training part if
/// they are not, and Source::open opens them then.
bool reads_arrays(const Source& source);

// Keys that several of these sources have.
KeySpec val_path_key();
KeySpec cache_key();
KeySpec unlabeled_key();
KeySpec classes_key();
KeySpec val_size_key(const std::string& default_value);
KeySpec val_fraction_key(const std::string& default_value = "0.1");

/// image_keys(), and then those of one source, which can declare keys of image_keys() with another default.
KeySpecs with_image_keys(const KeySpecs& own);
/// The same without the keys that divide a source with one part.
KeySpecs undivided_image_keys(const KeySpecs& own = {});

/// The value of `data.path`.
/// @param wanted  what it must name, such as "a text file"
/// @throws ConfigError  it is not set
const std::string& required_path(const Section& data, const std::string& wanted);

/// @throws std::out_of_range  an index is outside [0, size)
void check_indices(std::span<const batch::Draw> draws, std::int64_t size);

}  // namespace lockstep::data
