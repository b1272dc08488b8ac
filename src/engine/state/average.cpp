// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/average.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/engine/stateful.hpp>

#include <torch/types.h>

#include "engine/state/paths.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::engine {

namespace {

checkpoints::Array in_type(const checkpoints::Array& array, DType dtype) {
  if (array.dtype == dtype) return array;
  return array_of(tensor_over(array).to(parallel::scalar_type_of(dtype)), "an average");
}

}  // namespace

KeySpec weights_key(const std::string& name, const std::string& help) {
  return keys::choice(name, "auto", help + "; auto: the average of section ema where there is one",
                      {"auto", "trained", "average"});
}

bool takes_average(const checkpoints::Archive& checkpoint, const std::string& wanted, const std::string& cited_as) {
  const bool is_there = !checkpoint.arrays_in(kAverageParameters).empty();
  if (wanted == "average" && !is_there) {
    throw ConfigError(cited_as + ": " + checkpoint.origin() + " contains no average of the weights; see ema.kind");
  }
  return is_there && wanted != "trained";
}

checkpoints::Archive with_model(const checkpoints::Archive& checkpoint, bool is_average, AverageType type) {
  const std::string& chosen = is_average ? kAverage : kModel;
  const std::string& other = is_average ? kModel : kAverage;
  checkpoints::Archive result;
  result.set_origin(checkpoint.origin());
  for (const auto& [name, value] : checkpoint.attributes_of("/")) result.set("/", name, value);
  for (const std::string& array_path : checkpoint.array_paths()) {
    if (array_path.starts_with(other + "/")) continue;
    const bool is_of_model = array_path.starts_with(chosen + "/");
    // Arrays instead of links: they may lead to what is left out here.
    const std::string path = is_of_model ? kModel + array_path.substr(chosen.size()) : array_path;
    const bool converts = is_of_model && is_average && type == AverageType::of_trained && checkpoint.has(path);
    result.put(path, converts ? in_type(checkpoint.array(array_path), checkpoint.array(path).dtype)
                              : checkpoint.array(array_path));
  }
  return result;
}

}  // namespace lockstep::engine
