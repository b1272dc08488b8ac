// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/families/family.hpp>

#include <vector>

namespace lockstep::ckpt {

/// The program `ckpt`: parses the command line and executes the command in a child process, since files may come from
/// anywhere. A library that crashes on one costs an exit code, not more.
///
/// Your own program with families of models appends them to builtin_families(), so that `convert --as` knows them.
/// @return  the documented exit code, for main
int run(int argc, char** argv, const std::vector<families::FamilyRow>& families = families::builtin_families());

}  // namespace lockstep::ckpt
