// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/step_graph.hpp"

#include <lockstep/core/error.hpp>

#include <exception>
#include <utility>

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

}  // namespace

StepGraph::StepGraph(std::shared_ptr<const Gpu> gpu, Collectives& collectives)
    : gpu_(std::move(gpu)), collectives_(&collectives) {}

StepGraph::~StepGraph() {
  if (graph_ != nullptr) gpu_->api().destroy(graph_);
}

void StepGraph::use_stream(const Gpu& gpu) {
  const gpu::Fault fault = gpu.api().use_stream(gpu.index());
  if (fault != nullptr) throw ConfigError(std::string("run.device: a stream of the GPU: ") + fault);
}

std::string StepGraph::record(const std::function<void()>& body) {
  collectives_->begin_capture();
  if (const gpu::Fault fault = gpu_->api().begin_capture(gpu_->index(), &graph_); fault != nullptr) {
    const std::string reason = fault;
    collectives_->end_capture();
    return reason;
  }
  std::string reason = fault_of(body);
  const std::string end = fault_of([this] { collectives_->end_capture(); });
  if (reason.empty()) reason = end;
  const gpu::Fault fault = gpu_->api().end_capture(graph_);  // also after a failure, else the stream stays unusable
  if (reason.empty() && fault != nullptr) reason = fault;
  return reason;
}

void StepGraph::launch() {
  collectives_->replay([this] {
    const gpu::Fault fault = gpu_->api().launch(graph_);
    if (fault != nullptr) throw CommError(std::string("a captured step: ") + fault);
  });
}

}  // namespace lockstep::mpi
