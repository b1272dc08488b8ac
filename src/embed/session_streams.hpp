// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>
#include <lockstep/session.hpp>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <memory>
#include <optional>
#include <string>

namespace lockstep::mpi {
class Gpu;
}

namespace lockstep::embed {

/// The GPU of a session with two streams: the session computes on a stream of its own, and arrays on the GPU belong to
/// the stream of the program. Events order the two where a call uses such arrays; the host never waits for it. On the
/// CPU there are no streams, and nothing is done.
class SessionStreams {
 public:
  /// Chooses the device of a session, and leaves the one of the thread as it is.
  /// @param device  value of run.device
  /// @throws ConfigError  see mpi::choose_device
  /// Collective. To be called before anything asks LibTorch about CUDA.
  SessionStreams(const std::string& device, const mpi::Communicator& world);

  const mpi::Gpu* gpu() const noexcept { return gpu_.get(); }  ///< null = the CPU
  at::Device device() const noexcept { return own_stream_ ? own_stream_->device() : at::Device(at::kCPU); }

  /// The stream of the program from now on.
  /// @param stream  a cudaStream_t of the GPU of the session; null = the current one of LibTorch in the thread that
  ///                calls, which is the default stream unless the program changes it
  /// @throws ConfigError  it is no stream of this GPU
  void set_program_stream(void* stream);

  // ---- calls, which OwnStream begins and ends

  /// A tensor of the program is read or written: if it is on the GPU, what comes next in the call follows what the
  /// program's stream has so far, and what that gets later follows the call.
  /// @throws DataError  it is on another device than the session
  void use(const std::string& name, const at::Tensor& tensor);
  void use(const SampleTensors& tensors) {
    for (const auto& [name, tensor] : tensors) use(name, tensor);
  }
  /// The program gets a tensor of the session: what its stream gets later follows the call.
  void hand_out(const at::Tensor& tensor);
  /// Runs a function of the program in the middle of a call, on the stream that the thread has outside.
  template <class Work>
  auto outside(const Work& work) const {
    std::optional<c10::StreamGuard> guard;
    if (outside_) guard.emplace(*outside_);
    return work();
  }

 private:
  friend class OwnStream;

  const c10::Stream& program_stream() const { return program_stream_ ? *program_stream_ : *outside_; }
  void follow_program();
  void let_program_follow() noexcept;

  std::shared_ptr<const mpi::Gpu> gpu_;        // null = the CPU
  std::optional<c10::Stream> own_stream_;      // set on a GPU, as the event
  std::optional<c10::Event> event_;            // marks what one stream has for the other
  std::optional<c10::Stream> program_stream_;  // none = that of the thread
  std::optional<c10::Stream> outside_;         // that of the thread, set in a call
  bool follows_program_ = false;               // the call at hand does
  bool program_follows_ = false;               // will, at the end of the call
};

/// A call of a session: its GPU and stream are those of the thread. At the end those of the program are as they were.
class OwnStream {
 public:
  explicit OwnStream(SessionStreams& streams);
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

 private:
  SessionStreams* streams_;
  std::optional<c10::StreamGuard> guard_;  // none = the CPU
};

}  // namespace lockstep::embed
