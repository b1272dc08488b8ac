// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/key_spec.hpp>

#include <limits>
#include <string>
#include <vector>

/// Builders of KeySpec, one for each type. Defaults are written as a user would write them.
namespace lockstep::keys {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

KeySpec boolean(const std::string& name, const std::string& default_value, const std::string& help);

/// @param min, max  inclusive
KeySpec integer(const std::string& name, const std::string& default_value, const std::string& help,
                double min = -kUnlimited, double max = kUnlimited);
/// @param min, max  inclusive
KeySpec real(const std::string& name, const std::string& default_value, const std::string& help,
             double min = -kUnlimited, double max = kUnlimited);
/// A number greater than `min_exclusive` and at most `max`.
KeySpec real_above(const std::string& name, double min_exclusive, double max, const std::string& default_value,
                   const std::string& help);

KeySpec text(const std::string& name, const std::string& default_value, const std::string& help);
KeySpec choice(const std::string& name, const std::string& default_value, const std::string& help,
               const std::vector<std::string>& choices);

/// A comma-separated list. @param min, max  of each number, inclusive
KeySpec integers(const std::string& name, const std::string& default_value, const std::string& help,
                 double min = -kUnlimited, double max = kUnlimited);
/// A comma-separated list. @param min, max  of each number, inclusive
KeySpec reals(const std::string& name, const std::string& default_value, const std::string& help,
              double min = -kUnlimited, double max = kUnlimited);
/// A key that can be given several times. @param default_value  its only text; "" = none
KeySpec texts(const std::string& name, const std::string& default_value, const std::string& help);

}  // namespace lockstep::keys
