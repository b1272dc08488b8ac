// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/session.hpp>

#include "embed/own_threads.hpp"
#include "embed/session_impl.hpp"
#include "embed/session_streams.hpp"

namespace lockstep {

namespace {

/// A session in a call of the program.
template <class Impl>
struct Inside {
  Impl* impl;
  embed::OwnStream on_stream;

  Impl* operator->() const noexcept { return impl; }
};
template <class Impl>
Inside<Impl> inside(Impl& impl) {
  return {&impl, embed::OwnStream(*impl.streams())};
}

}  // namespace

Session::Session(MPI_Comm communicator, const std::vector<std::string>& settings, const engine::Registry& registry) {
  const embed::OwnThreads unchanged(at::get_num_threads());
  impl_ = std::make_unique<Impl>(communicator, settings, registry);
}
Session::~Session() {
  const std::shared_ptr<embed::SessionStreams> streams = impl_->streams();
  const embed::OwnStream on_stream(*streams);
  impl_.reset();
}

void Session::close() { inside(*impl_)->close(); }
double Session::train(const SampleSource& samples) { return inside(*impl_)->train(samples); }
SampleTensors Session::predict(const SampleTensors& inputs) {
  const auto call = inside(*impl_);
  SampleTensors predictions = call->predict(inputs);
  for (const auto& [name, tensor] : predictions) impl_->streams()->hand_out(tensor);
  return predictions;
}
void Session::predict_into(const SampleTensors& inputs, const SampleTensors& outputs) {
  inside(*impl_)->predict_into(inputs, outputs);
}
void Session::update() { inside(*impl_)->update(); }
std::string Session::save() { return inside(*impl_)->save(); }
void Session::resume(const std::string& from) { inside(*impl_)->resume(from); }
void Session::push(const SampleTensors& samples, std::optional<std::int64_t> lane) {
  inside(*impl_)->push(samples, lane);
}
std::int64_t Session::buffer_size() const { return impl_->buffer_size(); }
std::pair<std::int64_t, std::int64_t> Session::lanes() const { return impl_->lanes(); }
double Session::train_buffer(std::int64_t steps) { return inside(*impl_)->train_buffer(steps); }
void Session::metric(const std::string& name, double value) { impl_->metric(name, value); }
std::int64_t Session::open_producers() const { return impl_->open_producers(); }
std::int64_t Session::dropped() const { return impl_->dropped(); }
std::int64_t Session::weights_step() const { return impl_->weights_step(); }
std::int64_t Session::step() const { return impl_->step(); }
std::int64_t Session::parameter_count() const { return impl_->parameter_count(); }
std::optional<double> Session::gradient_norm() const { return impl_->gradient_norm(); }
std::vector<std::string> Session::parameter_names() const { return impl_->parameter_names(); }
at::Tensor Session::parameter(const std::string& name) const { return inside(*impl_)->parameter(name); }
void Session::read_parameter(const std::string& name, const at::Tensor& values) const {
  inside(*impl_)->read_parameter(name, values);
}
void Session::set_parameter(const std::string& name, const std::function<at::Tensor()>& values) {
  inside(*impl_)->set_parameter(name, values);
}
void Session::set_stream(void* stream) { impl_->streams()->set_program_stream(stream); }
const mpi::Gpu* Session::gpu() const { return impl_->streams()->gpu(); }
const Task& Session::task() const { return impl_->task(); }
int Session::rank() const { return impl_->rank(); }
int Session::ranks() const { return impl_->ranks(); }

}  // namespace lockstep
