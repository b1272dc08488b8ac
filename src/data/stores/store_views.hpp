// SPDX-License-Identifier: BSD-3-Clause
// Parts of a store.
#pragma once

#include <lockstep/data/image.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::data {

using StorePtr = std::shared_ptr<const ImageStore>;

/// Divides a store: the last floor(size * fraction) images of a keyed permutation are `val`, which is null if there are
/// none.
ImageSplits divided(const StorePtr& store, double fraction, std::uint64_t key);

/// A store with other numbers of its classes: those of the names in `order`. Its class names are `order`, or the ids
/// of classes that are matched by another name.
/// @param names  the name of each class of the store
/// @throws DataError  a class of the store is not in `order`
StorePtr with_class_order(StorePtr store, const std::vector<std::string>& order, const std::vector<std::string>& names);

/// A store without the images that a list file names, either with or without labels.
/// @param found  is increased by the number of these images
/// @throws DataError  the file cannot be read, or no image remains
StorePtr without_listed(StorePtr store, const std::string& path, std::int64_t& found);

}  // namespace lockstep::data
