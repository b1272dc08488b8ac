// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/kernels/own_functions.hpp"

namespace lockstep::fake_gpu {

namespace {

const OwnFunctions& own_functions() {
  static const OwnFunctions& table = *[] {
    auto* const rows = new OwnFunctions;  // never destroyed: threads of streams use it until the process ends
    add_cudnn_functions(*rows);
    add_dropout_functions(*rows);
    add_sync_batch_norm_functions(*rows);
    return rows;
  }();
  return table;
}

}  // namespace

const c10::KernelFunction* own_function(const std::string& name) {
  const auto row = own_functions().find(name);
  return row == own_functions().end() ? nullptr : &row->second;
}

}  // namespace lockstep::fake_gpu
