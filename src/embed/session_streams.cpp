// SPDX-License-Identifier: BSD-3-Clause
#include "embed/session_streams.hpp"

#include <lockstep/core/error.hpp>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <exception>

#include "mpi/gpu/gpu.hpp"
#include "mpi/process/topology.hpp"

namespace lockstep::embed {

namespace {

at::Device device_of(const mpi::Gpu& gpu) { return {at::kCUDA, static_cast<at::DeviceIndex>(gpu.index())}; }

}  // namespace

SessionStreams::SessionStreams(const std::string& device, const mpi::Communicator& world) {
  if (device == "cpu") return;
  gpu_ = mpi::choose_device(device, world, mpi::Topology::of(world).local_rank).gpu;
  if (!gpu_) return;
  const c10::impl::VirtualGuardImpl streams(at::kCUDA);
  own_stream_ = streams.getStreamFromGlobalPool(device_of(*gpu_));
  event_.emplace(at::kCUDA);
  streams.uncheckedSetDevice({at::kCUDA, static_cast<at::DeviceIndex>(gpu_->previous())});
}

void SessionStreams::set_program_stream(void* stream) {
  if (stream == nullptr) return program_stream_.reset();
  if (!gpu_) throw ConfigError("a stream needs a run on a GPU, but this run computes on the CPU; set run.device=cuda");
  const c10::Stream given(c10::Stream::UNSAFE, device(), gpu_->number_of_stream(stream));
  try {
    event_->record(given);  // of another GPU, it is refused here
  } catch (const c10::Error& error) {
    const std::string text = error.what();
    throw ConfigError("the stream cannot be used on GPU " + std::to_string(gpu_->index()) +
                      ", where the run is: " + text.substr(0, text.find('\n')));  // advice and a stack follow
  }
  program_stream_ = given;
}

void SessionStreams::use(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return;
  if (tensor.device() != device()) {
    throw DataError("'" + name + "' is on " + tensor.device().str() + ", but the run computes on " + device().str());
  }
  follow_program();
  tensor.record_stream(
      *own_stream_);  // it may belong to a third stream, where LibTorch would reuse it when it is freed
}

void SessionStreams::hand_out(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return;
  tensor.record_stream(program_stream());
  program_follows_ = true;
}

void SessionStreams::follow_program() {
  program_follows_ = true;
  if (std::exchange(follows_program_, true)) return;
  event_->record(program_stream());
  event_->block(*own_stream_);
}

void SessionStreams::let_program_follow() noexcept {
  follows_program_ = false;
  if (!std::exchange(program_follows_, false)) return;
  try {
    event_->record(*own_stream_);
    event_->block(program_stream());
  } catch (const std::exception&) {  // the device has failed: nothing runs on it any more
  }
}

OwnStream::OwnStream(SessionStreams& streams) : streams_(&streams) {
  if (!streams_->gpu_) return;
  streams_->outside_ = c10::impl::VirtualGuardImpl(at::kCUDA).getStream(streams_->own_stream_->device());
  guard_.emplace(*streams_->own_stream_);
}

OwnStream::~OwnStream() {
  if (!guard_) return;
  streams_->let_program_follow();
  streams_->outside_.reset();
}

}  // namespace lockstep::embed
