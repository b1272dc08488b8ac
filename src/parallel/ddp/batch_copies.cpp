// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/ddp/batch_copies.hpp"

#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "batch/collate.hpp"

namespace lockstep::parallel {

BatchCopies::BatchCopies(const at::Device& device) : device_(device) {
  if (device.is_cpu()) return;
  stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  copied_.emplace(device.type());
}

batch::Batch BatchCopies::copy(const batch::Batch& batch) {
  const c10::NoGradGuard no_grad;
  if (!stream_) return batch::scatter(batch.share(), device_);
  batch::Batch copies;
  {
    const c10::StreamGuard guard(*stream_);
    copies = batch::scatter(batch.share(), device_);
    copied_->record(*stream_);
  }
  const c10::Stream current = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  copied_->block(current);
  batch::record_stream(copies, current);
  return copies;
}

}  // namespace lockstep::parallel
