// SPDX-License-Identifier: BSD-3-Clause
#include "data/fields/field_normalization.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <cmath>

#include "core/text/text.hpp"

namespace lockstep::data {

namespace {

constexpr double kConstantShare = 1e-6;  // part of the root mean square
constexpr double kFloorOfTheWell = 1e-4;

}  // namespace

bool is_constant(const ChannelNumbers& numbers) {
  const double rms = std::isnan(numbers.rms) ? std::hypot(numbers.mean, numbers.std) : numbers.rms;
  return !(numbers.std > kConstantShare * rms);
}

Affine affine_of(const ChannelNumbers& numbers, const NormalizationRule& rule, bool has_floor_of_well) {
  Affine affine;
  const double floor = rule.floor >= 0 ? rule.floor : has_floor_of_well ? kFloorOfTheWell : 0;
  switch (rule.kind) {
    case Normalization::none:
      return affine;
    case Normalization::zscore:
      affine = {.shift = numbers.mean, .scale = numbers.std};
      if (floor == 0 && is_constant(numbers)) affine.scale = 1;
      break;
    case Normalization::rms:
      affine = {.shift = 0, .scale = numbers.rms};
      break;
    case Normalization::minmax:
      affine = {.shift = numbers.min, .scale = numbers.max - numbers.min};
      break;
  }
  affine.scale = std::max(affine.scale, floor);
  if (!(affine.scale > 0)) affine.scale = 1;
  return affine;
}

void share_deviations(std::vector<FieldNumbers>& numbers, const NormalizationRule& rule) {
  for (const std::vector<std::string>& vector : rule.vectors) {
    std::vector<FieldNumbers*> found;
    for (const std::string& name : vector) {
      const auto number = std::ranges::find(numbers, name, &FieldNumbers::channel);
      if (number == numbers.end()) {
        std::vector<std::string> names;
        for (const FieldNumbers& each : numbers) names.push_back(each.channel);
        throw ConfigError(rule.vector_cited + ": there is no channel '" + name + "'; the channels are " +
                          joined(names));
      }
      found.push_back(&*number);
    }
    for (ChannelNumbers FieldNumbers::*const part : {&FieldNumbers::values, &FieldNumbers::differences}) {
      double squares = 0;
      for (const FieldNumbers* each : found) squares += std::pow((each->*part).std, 2);
      for (FieldNumbers* each : found) (each->*part).std = std::sqrt(squares / static_cast<double>(found.size()));
    }
  }
}

}  // namespace lockstep::data
