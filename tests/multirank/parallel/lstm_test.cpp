// SPDX-License-Identifier: BSD-3-Clause
// A module of LibTorch that keeps references to its parameters.
#include <torch/nn/modules/rnn.h>
#include <torch/nn/utils/rnn.h>

#include "parallel_test.hpp"

namespace lockstep::parallel {
namespace lstm_test {

using LstmTest = ParallelTest;

class Recurrent : public models::Model {
 public:
  Recurrent() : lstm(torch::nn::LSTMOptions(3, 4).num_layers(2).batch_first(true)) {
    register_module("lstm", lstm);
    to(at::kDouble);
    const torch::NoGradGuard no_grad;
    std::int64_t seed = 0;
    for (auto& parameter : parameters()) parameter.copy_(eighths(parameter.sizes(), ++seed));
  }
  /// @param input  [2, 5, 3], of which the second sample has 3 tokens
  at::Tensor forward(const at::Tensor& input) override {
    const auto packed = torch::nn::utils::rnn::pack_padded_sequence(input, torch::tensor({5, 3}), /*batch_first=*/true);
    const auto [output, state] = lstm->forward_with_packed_input(packed);
    return std::get<0>(torch::nn::utils::rnn::pad_packed_sequence(output, /*batch_first=*/true));
  }

  torch::nn::LSTM lstm;
};

// Case 33.
TEST_F(LstmTest, PackedSequencesTrainAsInOneProcess) {
  for (const bool shares : {false, true}) {
    auto model = std::make_shared<Recurrent>();
    Recurrent alone;
    const auto wrapper = wrap(model, {.shares_parameters = shares});
    for (int step = 0; step < 3; ++step) {
      const auto input = [step](int r) { return eighths({2, 5, 3}, 3 * step + r); };
      drop_gradients(*model);
      const at::Tensor output = wrapper->forward(input(rank()));
      EXPECT_TRUE(at::equal(output, alone.forward(input(rank()))));
      output.square().sum().backward();
      expect_gradients(*model,
                       average_gradients(alone, size(), [&](int r) { return alone.forward(input(r)).square().sum(); }));
    }
  }
}

}  // namespace lstm_test
}  // namespace lockstep::parallel
