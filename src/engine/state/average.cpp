// SPDX-License-Identifier: BSD-3-Clause
#include "engine/state/average.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include "engine/state/paths.hpp"

namespace lockstep::engine {

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

checkpoints::Archive with_model(const checkpoints::Archive& checkpoint, bool is_average) {
  const std::string& chosen = is_average ? kAverage : kModel;
  const std::string& other = is_average ? kModel : kAverage;
  checkpoints::Archive result;
  result.set_origin(checkpoint.origin());
  for (const auto& [name, value] : checkpoint.attributes_of("/")) result.set("/", name, value);
  for (const std::string& at : checkpoint.array_paths()) {
    if (at.starts_with(other + "/")) continue;
    const bool is_of_model = at.starts_with(chosen + "/");
    // Arrays instead of links: they may lead to what is left out here.
    result.put(is_of_model ? kModel + at.substr(chosen.size()) : at, checkpoint.array(at));
  }
  return result;
}

}  // namespace lockstep::engine
