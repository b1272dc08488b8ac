// SPDX-License-Identifier: BSD-3-Clause
// A decoder-only transformer: learned positions, pre-norm, tied head.
// Source: Radford et al., "Language models are unsupervised multitask learners", 2019, in nanoGPT's configuration.
#include <lockstep/core/error.hpp>
#include <lockstep/models/functional.hpp>
#include <lockstep/models/layers.hpp>

#include <torch/types.h>

#include <cmath>

#include "models/families/rows.hpp"
#include "models/layers/initial_values.hpp"
#include "models/layers/sequence.hpp"

// N samples, T tokens, E features, V vocabulary.
namespace lockstep::models {

namespace {

struct GptOptions {
  std::int64_t depth;
  std::int64_t heads;
  std::int64_t features;
  std::int64_t block;
  std::int64_t vocabulary;
  bool has_bias;
  double dropout;
};

class Attention : public Block {
 public:
  explicit Attention(const GptOptions& options) : heads_(options.heads), dropout_probability_(options.dropout) {
    in_ = register_module("qkv", std::make_shared<Linear>(options.features, 3 * options.features, options.has_bias));
    out_ = register_module("out", std::make_shared<Linear>(options.features, options.features, options.has_bias));
    dropout_ = register_module("dropout", std::make_shared<Dropout>(options.dropout));
  }

  at::Tensor forward(const at::Tensor& input) override {
    const auto n = input.size(0);
    const auto t = input.size(1);
    const auto e = input.size(2);
    const auto qkv = run(*in_, input).view({n, t, 3, heads_, e / heads_}).permute({2, 0, 3, 1, 4}).unbind(0);
    const double dropout = is_training() ? dropout_probability_ : 0.0;
    const at::Tensor mixed = models::attention(qkv[0], qkv[1], qkv[2], dropout, /*is_causal=*/true);
    return run(*dropout_, run(*out_, mixed.transpose(1, 2).reshape({n, t, e})));
  }

 private:
  std::int64_t heads_;
  double dropout_probability_;
  std::shared_ptr<Linear> in_;
  std::shared_ptr<Linear> out_;
  std::shared_ptr<Dropout> dropout_;
};

class FeedForward : public Block {
 public:
  explicit FeedForward(const GptOptions& options) {
    in_ = register_module("in", std::make_shared<Linear>(options.features, 4 * options.features, options.has_bias));
    out_ = register_module("out", std::make_shared<Linear>(4 * options.features, options.features, options.has_bias));
    dropout_ = register_module("dropout", std::make_shared<Dropout>(options.dropout));
  }

  at::Tensor forward(const at::Tensor& input) override { return run(*dropout_, run(*out_, linear_gelu(*in_, input))); }

 private:
  std::shared_ptr<Linear> in_;
  std::shared_ptr<Linear> out_;
  std::shared_ptr<Dropout> dropout_;
};

class TransformerBlock : public Block {
 public:
  explicit TransformerBlock(const GptOptions& options) {
    norm1_ = register_module("norm1", std::make_shared<LayerNorm>(options.features, options.has_bias));
    attention_ = register_module("attention", std::make_shared<Attention>(options));
    norm2_ = register_module("norm2", std::make_shared<LayerNorm>(options.features, options.has_bias));
    feed_forward_ = register_module("feed_forward", std::make_shared<FeedForward>(options));
  }

  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor x = input + run(*attention_, run(*norm1_, input));
    return x + run(*feed_forward_, run(*norm2_, x));
  }

 private:
  std::shared_ptr<LayerNorm> norm1_;
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<LayerNorm> norm2_;
  std::shared_ptr<FeedForward> feed_forward_;
};

class Gpt : public Model {
 public:
  explicit Gpt(const GptOptions& options) : block_(options.block) {
    tokens_ = register_module("tokens", std::make_shared<Embedding>(options.vocabulary, options.features));
    positions_ = register_module("positions", std::make_shared<Embedding>(options.block, options.features));
    dropout_ = register_module("dropout", std::make_shared<Dropout>(options.dropout));
    for (std::int64_t layer = 0; layer < options.depth; ++layer) {
      blocks_.push_back(register_module("block" + std::to_string(layer), std::make_shared<TransformerBlock>(options)));
    }
    norm_ = register_module("norm", std::make_shared<LayerNorm>(options.features, options.has_bias));
    initialize(options.depth);
  }

  /// [N, T] int64 tokens -> [N, T, V] logits
  at::Tensor forward(const at::Tensor& input) override {
    TORCH_CHECK(input.size(1) <= block_, "a sequence of ", input.size(1),
                " tokens is longer than the maximum of the model, ", block_);
    const at::Tensor place = at::arange(input.size(1), input.options());
    at::Tensor x = run(*dropout_, run(*tokens_, input) + run(*positions_, place));
    for (const auto& block : blocks_) x = run(*block, x);
    return models::linear(run(*norm_, x), tokens_->weight, {});  // the head is tied to the token embedding
  }

 private:
  /// Weights from N(0, 0.02), biases 0; the projections that end a residual branch divided by sqrt(2 * depth).
  void initialize(std::int64_t depth) {
    const torch::NoGradGuard no_grad;
    const double branch_std = 0.02 / std::sqrt(2.0 * static_cast<double>(depth));
    for (auto& parameter : named_parameters()) {
      const std::string& name = parameter.key();
      if (parameter.value().dim() >= 2) {
        draw_normal(parameter.value(), 0.0, name.ends_with("out.weight") ? branch_std : 0.02);
      } else if (name.ends_with("bias")) {
        parameter.value().zero_();
      }
    }
  }

  std::int64_t block_;
  std::shared_ptr<Embedding> tokens_;
  std::shared_ptr<Embedding> positions_;
  std::shared_ptr<Dropout> dropout_;
  std::vector<std::shared_ptr<TransformerBlock>> blocks_;
  std::shared_ptr<LayerNorm> norm_;
};

}  // namespace

std::shared_ptr<Model> make_gpt(const Section& model, const Task& task) {
  if (!task.is_text) throw ConfigError("model.name: gpt needs text, but data.name provides images");
  const GptOptions options{.depth = model.integer("depth"),
                           .heads = model.integer("num_heads"),
                           .features = model.integer("embed_dim"),
                           .block = task.sample_shape.at(0),
                           .vocabulary = task.classes,
                           .has_bias = model.boolean("bias"),
                           .dropout = model.real("dropout")};
  if (options.features % options.heads != 0) {
    throw ConfigError(model.cite("embed_dim") + ": " + std::to_string(options.features) +
                      " is not divisible by model.num_heads = " + std::to_string(options.heads));
  }
  return std::make_shared<Gpt>(options);
}

}  // namespace lockstep::models
