// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace lockstep::fake_gpu {

struct Frames;

/// The calls that led to an operation. Equal ones are stored once, and stay.
using CallSite = const Frames*;

CallSite call_site();

/// Prints the calls outside of the fake GPU to stderr, the innermost first.
void print(CallSite site);

}  // namespace lockstep::fake_gpu
