// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/commands.hpp"

int main(int argc, char** argv) { return lockstep::ckpt::run({argv + 1, argv + argc}); }
