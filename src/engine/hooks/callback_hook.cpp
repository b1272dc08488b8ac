// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/callback_hook.hpp>

#include <utility>

namespace lockstep::engine {

namespace {

template <class Function, class... Arguments>
void call(const Function& function, Arguments&&... arguments) {
  if (function) function(std::forward<Arguments>(arguments)...);
}

class CallbackHook : public Hook {
 public:
  explicit CallbackHook(Callbacks callbacks) : call_(std::move(callbacks)) {}

  void before_train(Trainer& trainer) override { call(call_.before_train, trainer); }
  void before_epoch(Trainer& trainer) override { call(call_.before_epoch, trainer); }
  void before_step(Trainer& trainer) override { call(call_.before_step, trainer); }
  void on_forward(Trainer& trainer, const LastBatch& batch) override { call(call_.on_forward, trainer, batch); }
  void on_loss(Trainer& trainer, const LastBatch& batch) override { call(call_.on_loss, trainer, batch); }
  void on_backward(Trainer& trainer, const LastBatch& batch) override { call(call_.on_backward, trainer, batch); }
  void on_update(Trainer& trainer, const LastBatch& batch) override { call(call_.on_update, trainer, batch); }
  void before_agreement(Trainer& trainer) override { call(call_.before_agreement, trainer); }
  void after_step(Trainer& trainer, const StepReport& report) override { call(call_.after_step, trainer, report); }
  void after_epoch(Trainer& trainer) override { call(call_.after_epoch, trainer); }
  void between_steps(Trainer& trainer, const StepReport& report) override {
    call(call_.between_steps, trainer, report);
  }
  void before_roll_back(Trainer& trainer) override { call(call_.before_roll_back, trainer); }
  void after_roll_back(Trainer& trainer) override { call(call_.after_roll_back, trainer); }
  void before_evaluation(Trainer& trainer) override { call(call_.before_evaluation, trainer); }
  void after_evaluation(Trainer& trainer, const Measured& measured) override {
    call(call_.after_evaluation, trainer, measured);
  }

  void after_train(Trainer& trainer, Outcome outcome) override {
    const Callbacks last = std::exchange(call_, {});
    call(last.after_train, trainer, outcome);
  }

  bool reads_gradients() const override { return call_.reads_gradients; }

 private:
  Callbacks call_;
};

}  // namespace

std::unique_ptr<Hook> callback_hook(Callbacks callbacks) {
  return std::make_unique<CallbackHook>(std::move(callbacks));
}

}  // namespace lockstep::engine
