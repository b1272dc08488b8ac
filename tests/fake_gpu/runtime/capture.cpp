// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/capture.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep::fake_gpu {

namespace {

using Captures = std::vector<std::shared_ptr<StreamCapture>>;

/// Captures that have not ended.
Captures& captures() {
  static Captures& only = *new Captures;
  return only;
}

thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

/// Invalidates the captures for which `is_disturbed` holds.
/// @return  whether there are any
template <class Predicate>
bool invalidate_if(Predicate is_disturbed) {
  bool any = false;
  for (const auto& capture : captures()) {
    if (!is_disturbed(*capture)) continue;
    capture->is_invalid = true;
    any = true;
  }
  return any;
}

bool is_blocking_capture(const StreamCapture& capture, int device) {
  return std::any_of(capture.streams.begin(), capture.streams.end(), [device](const FakeStream* stream) {
    return stream->device == device && (stream->flags & cudaStreamNonBlocking) == 0;
  });
}

bool is_on_device(const StreamCapture& capture, int device) {
  return std::any_of(capture.streams.begin(), capture.streams.end(),
                     [device](const FakeStream* stream) { return stream->device == device; });
}

cudaError_t refuse_legacy_use(const FakeStream& stream) {
  const auto is_disturbed = [&stream](const StreamCapture& capture) {
    return is_blocking_capture(capture, stream.device);
  };
  return stream.is_legacy && invalidate_if(is_disturbed) ? cudaErrorStreamCaptureImplicit : cudaSuccess;
}

/// @return  the error of a call that the capture of `stream` refuses, which invalidates it
cudaError_t refuse(const FakeStream& stream, cudaError_t error) {
  return std::exchange(stream.capture->is_invalid, true) ? cudaErrorStreamCaptureInvalidated : error;
}

/// Whether all that was recorded comes before the end of the origin.
bool is_joined(const StreamCapture& capture) {
  std::vector<bool> is_reached(capture.graph->nodes.size());
  for (const std::size_t node : capture.origin->frontier) is_reached[node] = true;
  for (std::size_t node = is_reached.size(); node-- > 0;) {
    if (!is_reached[node]) return false;
    for (const std::size_t earlier : capture.graph->nodes[node].after) is_reached[earlier] = true;
  }
  return true;
}

void release_streams(StreamCapture& capture) {
  for (FakeStream* const stream : capture.streams) {
    stream->capture = nullptr;
    stream->frontier.clear();
  }
  capture.is_ended = true;
}

}  // namespace

cudaError_t begin_capture(FakeStream& stream, cudaStreamCaptureMode mode) {
  if (device_status() != cudaSuccess) return device_status();
  if (stream.is_legacy) return cudaErrorStreamCaptureUnsupported;
  if (stream.capture) return cudaErrorIllegalState;
  static unsigned long long last_id = 0;
  const auto capture = std::make_shared<StreamCapture>();
  capture->id = ++last_id;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = &stream;
  capture->streams.insert(&stream);
  captures().push_back(capture);
  stream.capture = capture;
  stream.frontier.clear();
  return cudaSuccess;
}

EndedCapture end_capture(FakeStream& stream) {
  const std::shared_ptr<StreamCapture> capture = stream.capture;
  if (!capture) return {.result = cudaErrorIllegalState, .graph = {}, .discarded = {}};
  const bool is_of_thread = capture->thread == std::this_thread::get_id();
  cudaError_t refusal = cudaSuccess;
  if (capture->origin != &stream) refusal = cudaErrorStreamCaptureUnmatched;
  if (capture->mode != cudaStreamCaptureModeRelaxed && !is_of_thread) refusal = cudaErrorStreamCaptureWrongThread;
  if (refusal != cudaSuccess) {
    capture->is_invalid = true;
    return {.result = refusal, .graph = {}, .discarded = {}};
  }
  cudaError_t result = device_status();
  if (!is_joined(*capture)) result = cudaErrorStreamCaptureUnjoined;
  if (capture->is_invalid) result = cudaErrorStreamCaptureInvalidated;
  release_streams(*capture);
  std::erase(captures(), capture);
  std::unique_ptr<Graph> graph = std::move(capture->graph);
  if (result != cudaSuccess) return {.result = result, .graph = {}, .discarded = std::move(graph)};
  return {.result = result, .graph = std::move(graph), .discarded = {}};
}

cudaStreamCaptureStatus status_of(const FakeStream& stream) {
  if (!stream.capture) return cudaStreamCaptureStatusNone;
  return stream.capture->is_invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

cudaStreamCaptureMode exchange_capture_mode(cudaStreamCaptureMode mode) { return std::exchange(mode_of_thread, mode); }

void record(FakeStream& stream, Submission submission) {
  auto& nodes = stream.capture->graph->nodes;
  nodes.push_back({.submission = std::move(submission),
                   .graph = stream.capture->graph.get(),
                   .site = call_site(),
                   .after = std::exchange(stream.frontier, {nodes.size()}),
                   .branch = stream.timeline});
}

cudaError_t join(FakeStream& stream, const FakeEvent& event) {
  const std::shared_ptr<StreamCapture>& capture = event.capture;
  if (stream.capture && stream.capture != capture) {
    capture->is_invalid = true;
    return refuse(stream, cudaErrorStreamCaptureMerge);
  }
  if (capture->is_ended) return cudaErrorCapturedEvent;
  if (capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  if (stream.is_legacy) {
    capture->is_invalid = true;
    return cudaErrorStreamCaptureImplicit;
  }
  stream.capture = capture;
  capture->streams.insert(&stream);
  for (const std::size_t node : event.frontier) {
    const auto end = stream.frontier.end();
    if (std::find(stream.frontier.begin(), end, node) == end) stream.frontier.push_back(node);
  }
  return cudaSuccess;
}

cudaError_t refuse_use(const FakeStream& stream) {
  if (device_status() != cudaSuccess) return device_status();
  if (stream.capture && stream.capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  return refuse_legacy_use(stream);
}

cudaError_t refuse_status(const FakeStream& stream) {
  const bool is_refused =
      stream.is_legacy && std::any_of(captures().begin(), captures().end(), [&](const auto& capture) {
        return is_blocking_capture(*capture, stream.device);
      });
  return is_refused ? cudaErrorStreamCaptureImplicit : cudaSuccess;
}

cudaError_t refuse_event_from_before(const FakeStream& stream) {
  return refuse(stream, cudaErrorStreamCaptureIsolation);
}

cudaError_t refuse_call(const FakeStream& stream) { return refuse(stream, cudaErrorStreamCaptureUnsupported); }

cudaError_t refuse_wait(const FakeStream& stream) {
  if (device_status() != cudaSuccess) return device_status();
  if (stream.capture) return refuse_call(stream);
  if (const cudaError_t refusal = refuse_legacy_use(stream); refusal != cudaSuccess) return refusal;
  return refuse_unsafe_call();
}

cudaError_t refuse_wait(const FakeEvent& event) {
  if (device_status() != cudaSuccess) return device_status();
  if (event.capture) {
    event.capture->is_invalid = true;
    return cudaErrorCapturedEvent;
  }
  return refuse_unsafe_call();
}

cudaError_t refuse_wait_for_device(int device) {
  if (device_status() != cudaSuccess) return device_status();
  const auto is_disturbed = [device](const StreamCapture& capture) { return is_on_device(capture, device); };
  return invalidate_if(is_disturbed) ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t refuse_unsafe_call() {
  if (mode_of_thread == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  const auto is_disturbed = [](const StreamCapture& capture) {
    if (capture.mode == cudaStreamCaptureModeRelaxed) return false;
    const bool is_seen_everywhere =
        capture.mode == cudaStreamCaptureModeGlobal && mode_of_thread == cudaStreamCaptureModeGlobal;
    return is_seen_everywhere || capture.thread == std::this_thread::get_id();
  };
  return invalidate_if(is_disturbed) ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

}  // namespace lockstep::fake_gpu
