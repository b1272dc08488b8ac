// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>
#include <lockstep/data/image.hpp>

#include <cstdint>

namespace lockstep::data {

/// Adds the place of an image to the errors of `call`.
template <class Call>
auto with_place(const ImageStore& store, std::int64_t index, const Call& call) {
  try {
    return call();
  } catch (const DataError& error) {
    throw DataError(store.place(index), error.what());
  }
}

}  // namespace lockstep::data
