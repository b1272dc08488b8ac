// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "core/system/process_facts.hpp"

namespace lockstep {

/// Installs what stacks_of_threads needs: the handler of a real-time signal that nothing else uses. Again and again is
/// fine.
void prepare_stacks();

/// The threads of this process except the calling one, each with its stack. A thread that waits for a disk or blocks
/// signals has none, nor one that does not answer within 100 ms. System calls that a signal interrupts continue.
/// @param most  threads that are looked at
std::vector<ThreadFacts> stacks_of_threads(std::size_t most);

/// The name of the function that contains an address, such as "lockstep::data::Loader::next()", without the types of
/// its parameters where they are long; "libc.so.6+0x12ab" if it has no name.
std::string function_name(const void* address);

/// Makes signals that end this process, such as SEGV, note themselves in its status line first. Then they do what they
/// did before: end the process, or call the handler of somebody else. Only the first call does something.
void note_fatal_signals();

}  // namespace lockstep
