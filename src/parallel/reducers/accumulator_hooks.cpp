// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/reducers/accumulator_hooks.hpp"

#include <torch/csrc/autograd/function_hook.h>

#include <memory>

namespace lockstep::parallel {

namespace {

class AfterAccumulation : public torch::autograd::FunctionPostHook {
 public:
  AfterAccumulation(AccumulatorListener& listener, std::size_t parameter)
      : listener_(&listener), parameter_(parameter) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    listener_->on_accumulated(parameter_, !inputs.empty() && inputs[0].defined());
    return outputs;
  }

 private:
  AccumulatorListener* listener_;
  std::size_t parameter_;
};

}  // namespace

AccumulatorHooks::AccumulatorHooks(const std::vector<NamedParameter>& parameters, AccumulatorListener& listener) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameters[i].tensor));
    hooks_.push_back(accumulators_.back()->add_post_hook(std::make_unique<AfterAccumulation>(listener, i)));
  }
}

AccumulatorHooks::~AccumulatorHooks() {
  for (std::size_t i = 0; i < accumulators_.size(); ++i) accumulators_[i]->del_post_hook(hooks_[i]);
}

}  // namespace lockstep::parallel
