// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/gpu/step_graph.hpp"

#include <lockstep/core/error.hpp>

#include <exception>
#include <stdexcept>
#include <utility>

#include "mpi/shared/device_collectives.hpp"

namespace lockstep::mpi {

namespace {

/// The error of `work`, in words; empty = nothing.
template <class Work>
std::string fault_of(const Work& work) {
  try {
    work();
    return "";
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.empty() ? "unknown error" : text.substr(0, text.find('\n'));  // behind it LibTorch prints a stack
  }
}

void require_done(gpu::Fault fault) {
  if (fault != nullptr) throw std::runtime_error(fault);
}

}  // namespace

StepGraph::StepGraph(std::shared_ptr<const Gpu> gpu, Collectives& collectives, const StepGraph* beside)
    : gpu_(std::move(gpu)), device_(on_device(collectives)), beside_(beside) {}

StepGraph::~StepGraph() {
  if (graph_ != nullptr) gpu_->api().destroy(graph_);
}

void StepGraph::use_stream(const Gpu& gpu) {
  const gpu::Fault fault = gpu.api().use_stream(gpu.index());
  if (fault != nullptr) throw ConfigError(std::string("run.device: a stream of the GPU: ") + fault);
}

std::string StepGraph::record(const std::function<void()>& body) {
  if (device_ != nullptr) device_->begin_capture();
  const gpu::Graph* const beside = beside_ != nullptr ? beside_->graph_ : nullptr;
  if (const gpu::Fault fault = gpu_->api().begin_capture(gpu_->index(), beside, &graph_); fault != nullptr) {
    const std::string reason = fault;
    if (device_ != nullptr) device_->end_capture();
    return reason;
  }
  std::string reason = fault_of(body);
  const std::string end = fault_of([this] {
    if (device_ != nullptr) device_->end_capture();
  });
  if (reason.empty()) reason = end;
  const gpu::Fault fault = gpu_->api().end_capture(graph_);  // also after a failure, else the stream stays unusable
  if (reason.empty() && fault != nullptr) reason = fault;
  return reason;
}

std::uint64_t StepGraph::draw_offset() const {
  std::uint64_t offset = 0;
  require_done(gpu_->api().draw_offset(graph_, &offset));
  return offset;
}

void StepGraph::set_draw_offset(std::uint64_t offset) const {
  require_done(gpu_->api().set_draw_offset(graph_, offset));
}

void StepGraph::launch() {
  const auto launch = [this] {
    const gpu::Fault fault = gpu_->api().launch(graph_);
    if (fault != nullptr) throw CommError(std::string("a captured step: ") + fault);
  };
  device_ != nullptr ? device_->replay(launch) : launch();
}

}  // namespace lockstep::mpi
