// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <optional>
#include <string>

namespace lockstep::ckpt {

/// The entries of a document by key: "optim.lr" of a configuration, "hosts.0" of an environment.
using Entries = std::map<std::string, std::string>;

/// Parses the text of an array that contains a document: /meta/config_ini or /meta/env_json. Values of a key that
/// occurs several times are joined by newlines.
/// @return  nullopt for other arrays, or if the text is malformed
std::optional<Entries> entries_of(const std::string& path, const std::string& text);

}  // namespace lockstep::ckpt
