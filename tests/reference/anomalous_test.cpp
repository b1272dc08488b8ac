// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>

#include "parallel/reducers/autograd_graph.hpp"
#include "support/reference.hpp"

namespace lockstep::testing::reference {
namespace anomalous_test {

/// The model of the file: parameters by name, in the order of the file.
class Model {
 public:
  Model(const std::vector<std::string>& names, bool is_tied) {
    const std::map<std::string, std::vector<std::int64_t>> shapes = {
        {"scale", {}},          {"trunk.weight", {4, 3}},    {"trunk.bias", {4}},     {"a.weight", {2, 4}},
        {"a.bias", {2}},        {"b.weight", {2, 4}},        {"b.bias", {2}},         {"bn.weight", {4}},
        {"bn.bias", {4}},       {"emb.weight", {5, 4}},      {"tied.weight", {5, 4}}, {"deep.x.0.weight", {4, 4}},
        {"deep.x.0.bias", {4}}, {"deep.x.2.weight", {4, 4}}, {"deep.x.2.bias", {4}},  {"deep.y.0.weight", {2, 4}},
        {"deep.y.0.bias", {2}}};
    for (const std::string& name : names) {
      const bool is_alias = is_tied && name == "tied.weight";
      tensors_[name] = is_alias ? tensors_.at("emb.weight") : torch::ones(shapes.at(name)).requires_grad_();
      if (!is_alias) listed_.push_back({name, tensors_[name]});
    }
  }

  /// @param module  the first part of the names
  void freeze(const std::string& module) {
    for (const auto& [name, tensor] : tensors_) {
      if (name == module || name.starts_with(module + ".")) at::Tensor(tensor).requires_grad_(false);
    }
  }

  const std::vector<parallel::NamedParameter>& listed() const { return listed_; }

  at::Tensor scale() const { return tensors_.at("scale"); }
  at::Tensor linear(const std::string& name, const at::Tensor& input) const {
    const auto bias = tensors_.find(name + ".bias");
    return at::linear(input, tensors_.at(name + ".weight"), bias == tensors_.end() ? at::Tensor() : bias->second);
  }
  at::Tensor trunk() const { return at::tanh(linear("trunk", torch::ones({4, 3}))); }
  at::Tensor deep(const at::Tensor& h) const {
    return linear("deep.y.0", linear("deep.x.2", at::relu(linear("deep.x.0", h))));
  }
  at::Tensor norm(const at::Tensor& h, bool is_training) const {
    return at::batch_norm(h, tensors_.at("bn.weight"), tensors_.at("bn.bias"), torch::zeros({4}), torch::ones({4}),
                          is_training, 0.1, 1e-5, false);
  }
  at::Tensor embedded() const { return at::embedding(tensors_.at("emb.weight"), torch::tensor({0L, 3L})); }

 private:
  std::map<std::string, at::Tensor> tensors_;
  std::vector<parallel::NamedParameter> listed_;
};

at::Tensor everything(const Model& model) {
  const at::Tensor h = model.trunk();
  return model.linear("a", h).sum() + model.linear("b", h).sum() + model.norm(h, true).sum() +
         model.embedded().sum() * model.scale() + model.linear("tied", h).sum() + model.deep(h).sum();
}

at::Tensor deep_chain(const Model& model) {
  const at::Tensor h = model.trunk();
  at::Tensor loss = model.linear("a", h).sum();
  for (int i = 0; i < 300; ++i) loss = loss + model.linear("b", h).sum();
  return loss;
}

at::Tensor in_place(const Model& model) {
  return model.linear("a", model.linear("trunk", torch::ones({4, 3})).add_(1).relu_()).sum();
}

at::Tensor trunk_without_gradients(const Model& model) {
  const torch::NoGradGuard no_grad;
  return model.trunk();
}

/// The tensor that the field `graph` says in words, by the case's name.
const std::map<std::string, at::Tensor (*)(const Model&)>& losses() {
  static const auto a = [](const Model& model) { return model.linear("a", model.trunk()).sum(); };
  static const auto b = [](const Model& model) { return model.linear("b", model.trunk()).sum(); };
  static const std::map<std::string, at::Tensor (*)(const Model&)> rows = {
      {"everything_in_one_loss", everything},
      {"branch_not_in_loss", a},
      {"branch_called_but_not_in_loss",
       [](const Model& model) {
         const at::Tensor unused = b(model);
         return a(model);
       }},
      {"frozen_part", a},
      {"frozen_but_used", a},
      {"all_frozen", a},
      {"shared_parameter", [](const Model& model) { return model.linear("tied", model.trunk()).sum(); }},
      {"shared_parameter_unused", a},
      {"detached_subgraph", [](const Model& model) { return model.linear("a", model.trunk().detach()).sum(); }},
      {"no_grad_subgraph", [](const Model& model) { return model.linear("a", trunk_without_gradients(model)).sum(); }},
      {"two_losses_only_one_passed",
       [](const Model& model) {
         const at::Tensor other = b(model);
         return a(model);
       }},
      {"two_losses_summed", [](const Model& model) { return a(model) + 0.5 * b(model); }},
      {"multiplied_by_zero", [](const Model& model) { return a(model) + 0 * b(model); }},
      {"constant_loss", [](const Model&) { return torch::ones({}).requires_grad_(); }},
      {"leaf_parameter_loss", [](const Model& model) { return model.scale(); }},
      {"deep_chain", deep_chain},
      {"index_select_branch",
       [](const Model& model) {
         const at::Tensor h = model.trunk();
         const at::Tensor x = model.linear("a", h);
         return at::where(x > 0, x, model.linear("b", h)).sum();
       }},
      {"in_place", in_place},
      {"nested_used", [](const Model& model) { return model.deep(model.trunk()).sum(); }},
      {"batchnorm_eval", [](const Model& model) { return model.linear("a", model.norm(model.trunk(), false)).sum(); }},
  };
  return rows;
}

void run_case(const Json& one_case) {
  require_known_fields(one_case, {"name", "graph", "frozen", "tied", "loss_has_graph", "reported", "first_message"});
  static const auto order = load("anomalous/anomalous.json").at("parameter_order").get<std::vector<std::string>>();
  Model model(order, !one_case.at("tied").is_null());
  for (const std::string module : one_case.at("frozen")) model.freeze(module);
  const auto row = losses().find(one_case.at("name"));
  if (row == losses().end()) throw std::runtime_error("no test knows the graph");
  const at::Tensor loss = row->second(model);
  EXPECT_EQ(loss.grad_fn() != nullptr, one_case.at("loss_has_graph"));
  const auto expected = one_case.at("reported").get<std::vector<std::string>>();
  EXPECT_EQ(parallel::anomalous_parameters({loss}, model.listed()), expected);
  if (loss.grad_fn() == nullptr) return;
  loss.backward();
  EXPECT_EQ(parallel::anomalous_parameters({loss}, model.listed()), expected) << "after backward";
}

TEST(ReferenceTest, ParametersOutsideTheLossAreThoseOfMmengine) {
  run_topic("anomalous",
            {{.file = "anomalous.json",
              // The last two tell what a wrapper does next, which is tested with the wrapper.
              .extra_fields = {"parameter_order", "through_wrapper", "through_wrapper_without_find_unused"},
              .run = run_case}});
}

}  // namespace anomalous_test
}  // namespace lockstep::testing::reference
