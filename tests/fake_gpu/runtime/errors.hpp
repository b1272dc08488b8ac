// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

namespace lockstep::fake_gpu {

/// CUDA's own name and sentence for an error. The driver has the same numbers and sentences.
/// @return  null for an error that CUDA does not have, or that the fake GPU never returns
const char* name_of(int error);
const char* sentence_of(int error);

}  // namespace lockstep::fake_gpu
