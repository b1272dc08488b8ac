// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "schedules.hpp"

namespace lockstep::testing::reference {

/// Rules of `schedulers`, each {"class", "args"}, over an optimizer of so many groups.
/// @param unit  what a scheduler that counts epochs counts here: "epoch", or "step" where an epoch has but one
Rules mmengine_rules(const Json& schedulers, std::size_t groups, const std::string& unit);
/// "betas" becomes "beta1" and "beta2".
std::vector<std::string> shown_names(const Json& watched);

}  // namespace lockstep::testing::reference
