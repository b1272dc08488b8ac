// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace lockstep::fake_gpu {

struct Frames;

/// The calls that led to an operation. Equal ones are stored once, and stay.
using CallFrames = const Frames*;

CallFrames call_site();

/// Prints the calls outside of the fake GPU to stderr, the innermost first.
void print(CallFrames site);

}  // namespace lockstep::fake_gpu
