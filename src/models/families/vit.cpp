// SPDX-License-Identifier: BSD-3-Clause
// Vision transformer. Parameters are named as in timm.
// Source: Dosovitskiy et al., "An image is worth 16x16 words", 2021, section 3.1.
#include <lockstep/core/error.hpp>
#include <lockstep/models/functional.hpp>
#include <lockstep/models/layers.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "models/families/rows.hpp"
#include "models/layers/initial_values.hpp"
#include "models/layers/sequence.hpp"

// N samples, T tokens, E features of a token.
namespace lockstep::models {

namespace {

constexpr double kVitEps = 1e-6;

struct VitOptions {
  std::int64_t channels;
  PatchGrid grid;
  std::int64_t classes;  ///< 0 = the model has no head
  std::int64_t patch_size;
  std::int64_t embed_dim;
  std::int64_t depth;
  std::int64_t num_heads;
  std::int64_t hidden;  ///< features between the two layers of an MLP
  bool has_class_token;
  bool has_mean_pooling;
  std::int64_t reg_tokens;
  bool no_embed_class;
  double init_values;  ///< 0 = no LayerScale
  double drop_path;
  bool has_qkv_bias;
  bool has_qk_norm;
  bool has_pre_norm;

  std::int64_t prefix_tokens() const { return (has_class_token ? 1 : 0) + reg_tokens; }
  /// Whether the tokens after block `i` are only read at position 0, so that nothing else has to be computed.
  bool is_class_token_enough(std::int64_t i) const { return i + 1 == depth && !has_mean_pooling; }
};

std::shared_ptr<LayerNorm> vit_norm(std::int64_t features) {
  return std::make_shared<LayerNorm>(features, /*has_bias=*/true, kVitEps);
}

class VitAttention : public LinearBranch {
 public:
  /// @param has_first_only  the output has only the first token
  VitAttention(const VitOptions& options, bool has_first_only)
      : heads_(options.num_heads), has_first_only_(has_first_only) {
    const std::int64_t e = options.embed_dim;
    qkv_ = register_module("qkv", std::make_shared<Linear>(e, 3 * e, options.has_qkv_bias));
    if (options.has_qk_norm) {
      q_norm_ = register_module("q_norm", vit_norm(e / heads_));
      k_norm_ = register_module("k_norm", vit_norm(e / heads_));
    }
    last_ = register_module("proj", std::make_shared<Linear>(e, e));
  }

 private:
  /// [N, T, E] -> the same, or [N, 1, E]
  at::Tensor before_last(const at::Tensor& input) override {
    const auto n = input.size(0);
    const auto t = input.size(1);
    const auto e = input.size(2);
    const std::int64_t queries = has_first_only_ ? 1 : t;
    const at::Tensor qkv = run(*qkv_, input).view({n, t, 3, heads_, e / heads_});
    const at::Tensor mixed = q_norm_ ? normalized_attention(qkv, queries) : models::self_attention(qkv, queries);
    return mixed.reshape({n, queries, e});
  }

  /// models::self_attention of normalized queries and keys.
  at::Tensor normalized_attention(const at::Tensor& qkv, std::int64_t queries) {
    const std::vector<at::Tensor> parts = qkv.permute({2, 0, 3, 1, 4}).unbind(0);  // [N, heads, T, E / heads] each
    const at::Tensor query = run(*q_norm_, parts[0].slice(2, 0, queries));
    return models::attention(query, run(*k_norm_, parts[1]), parts[2]).transpose(1, 2);
  }

  std::int64_t heads_;
  bool has_first_only_;
  std::shared_ptr<Linear> qkv_;
  std::shared_ptr<LayerNorm> q_norm_;
  std::shared_ptr<LayerNorm> k_norm_;
};

/// Multiplies each feature by a learned factor.
class LayerScale : public Block {
 public:
  LayerScale(std::int64_t features, double initial) {
    gamma_ = register_parameter("gamma", torch::full({features}, initial));
  }

  at::Tensor forward(const at::Tensor& input) override { return input * gamma_; }
  const at::Tensor& factors() const { return gamma_; }

 private:
  at::Tensor gamma_;
};

class VitBlock : public Block {
 public:
  /// @param has_first_only  the output has only the first token
  VitBlock(const VitOptions& options, double drop_path, bool has_first_only) : has_first_only_(has_first_only) {
    norm1_ = register_module("norm1", vit_norm(options.embed_dim));
    attention_ = register_module("attn", std::make_shared<VitAttention>(options, has_first_only));
    if (options.init_values != 0) scale1_ = register_module("ls1", scale(options));
    norm2_ = register_module("norm2", vit_norm(options.embed_dim));
    mlp_ = register_module("mlp", std::make_shared<GeluMlp>(options.embed_dim, options.hidden));
    if (options.init_values != 0) scale2_ = register_module("ls2", scale(options));
    drop_path_ = register_module("drop_path", std::make_shared<DropPath>(drop_path));
  }

  /// [N, T, E] -> the same, or [N, 1, E]
  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor residual = has_first_only_ ? input.slice(1, 0, 1) : input;
    const at::Tensor x = sum(residual, *attention_, run(*norm1_, input), scale1_.get());
    return sum(x, *mlp_, run(*norm2_, x), scale2_.get());
  }

 private:
  static std::shared_ptr<LayerScale> scale(const VitOptions& options) {
    return std::make_shared<LayerScale>(options.embed_dim, options.init_values);
  }

  /// residual + drop_path(scale * branch(input))
  at::Tensor sum(const at::Tensor& residual, LinearBranch& branch, const at::Tensor& input, LayerScale* scale) {
    if (!is_training() && !is_tapped()) {
      return branch.forward_sum(input, residual, scale == nullptr ? at::Tensor() : scale->factors());
    }
    const at::Tensor output = run(branch, input);
    return residual + run(*drop_path_, scale == nullptr ? output : run(*scale, output));
  }

  bool has_first_only_;
  std::shared_ptr<LayerNorm> norm1_;
  std::shared_ptr<VitAttention> attention_;
  std::shared_ptr<LayerScale> scale1_;
  std::shared_ptr<LayerNorm> norm2_;
  std::shared_ptr<GeluMlp> mlp_;
  std::shared_ptr<LayerScale> scale2_;
  std::shared_ptr<DropPath> drop_path_;
};

class PatchEmbedding : public Block {
 public:
  explicit PatchEmbedding(const VitOptions& options) {
    const Conv2dOptions conv{.stride = options.patch_size, .has_bias = !options.has_pre_norm, .padding = 0};
    proj_ = register_module("proj",
                            std::make_shared<Conv2d>(options.channels, options.embed_dim, options.patch_size, conv));
  }

  /// [N, C, H, W] -> [N, T, E], row by row
  at::Tensor forward(const at::Tensor& input) override { return run(*proj_, input).flatten(2).transpose(1, 2); }

 private:
  std::shared_ptr<Conv2d> proj_;
};

/// [N, T, E] -> the same, or [N, 1, E] if only the class token is read
std::shared_ptr<BlockSequence> vit_blocks(const VitOptions& options) {
  const auto blocks = std::make_shared<BlockSequence>();
  const std::vector<double> rates = drop_path_rates(options.drop_path, options.depth);
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const bool has_first_only = options.is_class_token_enough(static_cast<std::int64_t>(i));
    blocks->add(std::to_string(i), std::make_shared<VitBlock>(options, rates[i], has_first_only));
  }
  return blocks;
}

class VisionTransformer : public Model {
 public:
  explicit VisionTransformer(const VitOptions& options) : options_(options) {
    const std::int64_t e = options.embed_dim;
    if (options.has_class_token) class_token_ = register_parameter("cls_token", torch::empty({1, 1, e}));
    if (options.reg_tokens > 0) {
      register_tokens_ = register_parameter("reg_token", torch::empty({1, options.reg_tokens, e}));
    }
    const std::int64_t tokens =
        options.grid.height * options.grid.width + (options.no_embed_class ? 0 : options.prefix_tokens());
    positions_ = register_parameter("pos_embed", torch::empty({1, tokens, e}));
    patches_ = register_module("patch_embed", std::make_shared<PatchEmbedding>(options));
    if (options.has_pre_norm) first_norm_ = register_module("norm_pre", vit_norm(e));
    blocks_ = register_module("blocks", vit_blocks(options));
    norm_ = register_module(options.has_mean_pooling ? "fc_norm" : "norm", vit_norm(e));
    if (options.classes > 0) head_ = register_module("head", std::make_shared<Linear>(e, options.classes));
    initialize();
  }

  /// [N, C, H, W] -> [N, classes], or the features [N, E] without a head
  at::Tensor forward(const at::Tensor& input) override {
    const std::int64_t height = options_.grid.height * options_.patch_size;
    const std::int64_t width = options_.grid.width * options_.patch_size;
    TORCH_CHECK(input.size(2) == height && input.size(3) == width, "images of ", input.size(2), " x ", input.size(3),
                " pixels do not fit the positions, which are for ", height, " x ", width);
    at::Tensor x = run(*patches_, input);
    if (options_.no_embed_class) x = x + positions_;
    x = with_prefix(x);
    if (!options_.no_embed_class) x = x + positions_;
    if (first_norm_) x = run(*first_norm_, x);
    x = run(*blocks_, x);
    if (options_.has_mean_pooling) {
      x = run(*norm_, x.slice(1, options_.prefix_tokens()).mean(1));
    } else {
      x = run(*norm_, x.select(1, 0));  // one token only: the norm does not mix tokens
    }
    return head_ ? run(*head_, x) : x;
  }

 private:
  at::Tensor with_prefix(const at::Tensor& patches) const {
    std::vector<at::Tensor> parts;
    for (const at::Tensor& tokens : {class_token_, register_tokens_}) {
      if (tokens.defined()) parts.push_back(tokens.expand({patches.size(0), -1, -1}));
    }
    if (parts.empty()) return patches;
    parts.push_back(patches);
    return at::cat(parts, 1);
  }

  /// Linear weights and positions from N(0, 0.02), their biases 0; tokens from N(0, 1e-6).
  void initialize() {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : named_parameters()) {
      const std::string& name = parameter.key();
      at::Tensor& values = parameter.value();
      if (name == "cls_token" || name == "reg_token") {
        draw_normal(values, 0.0, 1e-6);
      } else if (name == "pos_embed" || values.dim() == 2) {
        draw_normal(values, 0.0, 0.02);
      } else if (name.ends_with(".bias") && !name.starts_with("patch_embed.")) {
        values.zero_();
      }
    }
  }

  VitOptions options_;
  at::Tensor class_token_;
  at::Tensor register_tokens_;
  at::Tensor positions_;
  std::shared_ptr<PatchEmbedding> patches_;
  std::shared_ptr<LayerNorm> first_norm_;
  std::shared_ptr<BlockSequence> blocks_;
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<Linear> head_;
};

/// The grid of patches of the images of a task.
PatchGrid grid_of(const Section& model, const Task& task, std::int64_t patch_size) {
  const std::int64_t height = task.sample_shape[1];
  const std::int64_t width = task.sample_shape[2];
  const bool is_divisible =
      height >= patch_size && width >= patch_size && height % patch_size == 0 && width % patch_size == 0;
  if (!is_divisible) {
    throw ConfigError(model.cite("patch_size") + ": images of " + std::to_string(height) + " x " +
                      std::to_string(width) + " pixels cannot be divided into patches of " +
                      std::to_string(patch_size) + " x " + std::to_string(patch_size) +
                      "; resize the images or change the size of the patches");
  }
  return {.height = height / patch_size, .width = width / patch_size};
}

}  // namespace

std::vector<double> drop_path_rates(double rate, std::int64_t depth) {
  std::vector<double> rates;
  for (std::int64_t i = 0; i < depth; ++i) {
    rates.push_back(depth == 1 ? 0 : rate * static_cast<double>(i) / static_cast<double>(depth - 1));
  }
  return rates;
}

std::shared_ptr<Model> make_vit(const Section& model, const Task& task) {
  require_images(model.text("name"), task, 3);
  const bool has_class_token = model.boolean("class_token");
  const std::string& pool = model.text("global_pool");
  if (pool == "token" && !has_class_token) {
    throw ConfigError(model.cite("global_pool") + ": the model has no class token; set model.global_pool=avg");
  }
  const std::int64_t embed_dim = model.integer("embed_dim");
  const VitOptions options{
      .channels = task.sample_shape[0],
      .grid = grid_of(model, task, model.integer("patch_size")),
      .classes = task.classes,
      .patch_size = model.integer("patch_size"),
      .embed_dim = embed_dim,
      .depth = model.integer("depth"),
      .num_heads = model.integer("num_heads"),
      .hidden = std::max<std::int64_t>(1, std::llround(static_cast<double>(embed_dim) * model.real("mlp_ratio"))),
      .has_class_token = has_class_token,
      .has_mean_pooling = pool == "avg" || !has_class_token,
      .reg_tokens = model.integer("reg_tokens"),
      .no_embed_class = model.text("no_embed_class") == "true",
      .init_values = model.real("init_values"),
      .drop_path = model.real("drop_path"),
      .has_qkv_bias = model.boolean("qkv_bias"),
      .has_qk_norm = model.boolean("qk_norm"),
      .has_pre_norm = model.boolean("pre_norm")};
  if (options.embed_dim % options.num_heads != 0) {
    throw ConfigError(model.cite("embed_dim") + ": " + std::to_string(options.embed_dim) +
                      " features are not divisible by model.num_heads = " + std::to_string(options.num_heads));
  }
  return std::make_shared<VisionTransformer>(options);
}

}  // namespace lockstep::models
