// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "core/text/text.hpp"
#include "data/transforms/policies.hpp"
#include "data/transforms/transforms.hpp"

namespace lockstep::data {

namespace {

/// The operations that were drawn for one image.
struct DrawnOps {
  int count = 0;
  std::array<DrawnOp, kMaxAugmentOps> ops;

  void add(const DrawnOp& op) { ops[static_cast<std::size_t>(count++)] = op; }
};

/// Everything that the transforms of this file have in common: they differ in the draw.
class AugmentTransform : public PixelTransform {
 public:
  explicit AugmentTransform(const Color& fill) : fill_(fill) {}

  std::string text(const Parameters& drawn) const override {
    const auto ops = drawn.as<DrawnOps>();
    std::vector<std::string> texts;
    for (int i = 0; i < ops.count; ++i) {
      const DrawnOp& op = ops.ops[static_cast<std::size_t>(i)];
      std::string name = augment_ops()[static_cast<std::size_t>(op.op)].name;
      if (name.starts_with("timm ")) name.erase(0, 5);
      texts.push_back(name + "(" + number_text(op.argument, 3) + ")");
    }
    return joined(texts);
  }
  void apply(Image& image, const Parameters& drawn, Workspace& workspace) const override {
    const auto ops = drawn.as<DrawnOps>();
    for (int i = 0; i < ops.count; ++i) apply_op(image, ops.ops[static_cast<std::size_t>(i)], fill_, workspace);
  }

 private:
  Color fill_;
};

// --- torchvision ---

/// rand_augment and trivial_augment_wide.
class UniformAugment : public AugmentTransform {
 public:
  /// @param bin  of the magnitudes; -1 = a random one
  UniformAugment(AugmentSpace space, int ops, int bin, int bins, ResizeFilter filter, const Color& fill)
      : AugmentTransform(fill), space_(space), count_(ops), bin_(bin), bins_(bins), filter_(filter) {
    if (bin >= bins) throw ConfigError("magnitude is not less than bins");
    for (std::size_t op = 0; op < magnitude_op_count(space); ++op)
      ops_.push_back(op_named(magnitude_op(space, op).name));
  }

  Parameters draw(random::Sequence& random, ImageSize size) const override {
    DrawnOps drawn{};
    for (int i = 0; i < count_; ++i) {
      const auto op = static_cast<std::size_t>(random.below(ops_.size()));
      const int bin = bin_ >= 0 ? bin_ : static_cast<int>(random.below(static_cast<std::uint64_t>(bins_)));
      double value = magnitude(space_, op, bin, bins_, size);
      if (magnitude_op(space_, op).is_signed && coin(random, 0.5)) value = -value;
      drawn.add({ops_[op], filter_, value});
    }
    return drawn;
  }

 private:
  AugmentSpace space_;
  int count_;
  int bin_;
  int bins_;
  ResizeFilter filter_;
  std::vector<int> ops_;  ///< position in augment_ops() of each operation of the space
};

class AutoAugment : public AugmentTransform {
 public:
  AutoAugment(const std::vector<PolicyPair>& policy, ResizeFilter filter, const Color& fill)
      : AugmentTransform(fill), policy_(policy), filter_(filter) {}

  Parameters draw(random::Sequence& random, ImageSize size) const override {
    constexpr int kBins = 10;
    DrawnOps drawn{};
    for (const PolicyStep& step : policy_[random.below(policy_.size())]) {
      const bool applies = random.uniform() <= step.probability;
      const bool is_negated = coin(random, 0.5);
      if (!applies) continue;
      const std::size_t op = position_of(step.op);
      const double value = step.level < 0 ? 0 : magnitude(AugmentSpace::auto_augment, op, step.level, kBins, size);
      const bool is_signed = magnitude_op(AugmentSpace::auto_augment, op).is_signed;
      drawn.add({op_named(step.op), filter_, is_signed && is_negated ? -value : value});
    }
    return drawn;
  }

 private:
  static std::size_t position_of(std::string_view name) {
    std::size_t op = 0;
    while (magnitude_op(AugmentSpace::auto_augment, op).name != name) ++op;
    return op;
  }

  const std::vector<PolicyPair>& policy_;
  ResizeFilter filter_;
};

// --- timm ---

/// The draws of timm's operations.
struct TimmDraws {
  double magnitude_std = 0;
  double magnitude_max = 0;                 ///< 0 = 10
  std::optional<ResizeFilter> filter = {};  ///< none = bilinear or bicubic, at random

  /// Draws an operation, unless it is not applied.
  void draw(random::Sequence& random, const std::string& name, double probability, double level,
            DrawnOps& drawn) const {
    if (probability < 1 && random.uniform() > probability) return;
    if (std::isinf(magnitude_std)) {
      level = random.uniform(0, level);
    } else if (magnitude_std > 0) {
      level += magnitude_std * random.normal();
    }
    level = std::clamp(level, 0.0, magnitude_max > 0 ? magnitude_max : 10.0);
    const int sign = coin(random, 0.5) ? -1 : 1;
    double argument = timm_argument(name, level, sign).value_or(0);
    if (name == "GaussianBlurRand") argument = random.uniform(0.1, 2.0 * argument);
    const auto any_filter = [&] { return coin(random, 0.5) ? ResizeFilter::bicubic : ResizeFilter::bilinear; };
    drawn.add({op_named("timm " + name), filter ? *filter : any_filter(), argument});
  }
};

class TimmRandAugment : public AugmentTransform {
 public:
  TimmRandAugment(AugmentConfig config, std::optional<ResizeFilter> filter, const Color& fill)
      : AugmentTransform(fill),
        config_(std::move(config)),
        draws_{config_.magnitude_std, config_.magnitude_max, filter} {
    if (!config_.weights.empty() && static_cast<std::size_t>(config_.layers) > config_.ops.size()) {
      throw ConfigError("more operations are drawn than there are");
    }
  }

  Parameters draw(random::Sequence& random, ImageSize) const override {
    DrawnOps drawn{};
    std::array<bool, 32> is_used{};
    for (int i = 0; i < config_.layers; ++i) {
      const std::size_t op = config_.weights.empty() ? random.below(config_.ops.size()) : weighted(random, is_used);
      is_used[op] = true;
      draws_.draw(random, config_.ops[op], config_.probability, config_.magnitude, drawn);
    }
    return drawn;
  }

 private:
  /// An operation that is not used yet, by its weight.
  std::size_t weighted(random::Sequence& random, const std::array<bool, 32>& is_used) const {
    double sum = 0;
    for (std::size_t op = 0; op < config_.ops.size(); ++op) sum += is_used[op] ? 0 : config_.weights[op];
    double rest = random.uniform() * sum;
    std::size_t last = 0;
    for (std::size_t op = 0; op < config_.ops.size(); ++op) {
      if (is_used[op]) continue;
      last = op;
      rest -= config_.weights[op];
      if (rest < 0) break;
    }
    return last;
  }

  AugmentConfig config_;
  TimmDraws draws_;
};

class TimmAutoAugment : public AugmentTransform {
 public:
  TimmAutoAugment(const std::vector<PolicyPair>& policy, TimmDraws draws, const Color& fill)
      : AugmentTransform(fill), policy_(policy), draws_(draws) {}

  Parameters draw(random::Sequence& random, ImageSize) const override {
    DrawnOps drawn{};
    for (const PolicyStep& step : policy_[random.below(policy_.size())]) {
      draws_.draw(random, step.op, step.probability, step.level, drawn);
    }
    return drawn;
  }

 private:
  const std::vector<PolicyPair>& policy_;
  TimmDraws draws_;
};

// --- options ---

using TransformPtr = std::unique_ptr<Transform>;

/// timm's fill is the mean color, unless another one is given.
Color timm_fill(const Section& options, const TransformContext& context) {
  if (!options.is_default("fill")) return fill_option(options);
  Color fill{};
  for (std::size_t c = 0; c < 3; ++c) {
    const double mean = context.statistics.mean[context.statistics.mean.size() == 1 ? 0 : c];
    fill[c] = static_cast<std::uint8_t>(std::clamp(std::nearbyint(255 * mean), 0.0, 255.0));
  }
  return fill;
}

std::optional<ResizeFilter> timm_filter(const Section& options) {
  return options.is_default("filter") ? std::nullopt : std::optional(filter_option(options));
}

void refuse_with_timm(const Section& options, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (!options.is_default(name)) throw ConfigError(std::string(name) + " cannot be combined with timm; remove one");
  }
}

TransformPtr make_rand_augment(const Section& options, const TransformContext& context) {
  const std::string& timm = options.text("timm");
  if (!timm.empty()) {
    refuse_with_timm(options, {"ops", "magnitude", "bins"});
    return std::make_unique<TimmRandAugment>(parse_timm_config(timm), timm_filter(options),
                                             timm_fill(options, context));
  }
  return std::make_unique<UniformAugment>(AugmentSpace::rand_augment, static_cast<int>(options.integer("ops")),
                                          static_cast<int>(options.integer("magnitude")),
                                          static_cast<int>(options.integer("bins")), filter_option(options),
                                          fill_option(options));
}

TransformPtr make_timm_auto_augment(const Section& options, const TransformContext& context) {
  refuse_with_timm(options, {"policy"});
  // "original-mstd0.5": a policy, and the standard deviation of its levels.
  const std::vector<std::string> parts = split_list(options.text("timm"), '-');
  TimmDraws draws{.magnitude_std = 0, .magnitude_max = 0, .filter = timm_filter(options)};
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (!parts[i].starts_with("mstd")) throw ConfigError("'" + parts[i] + "' is unknown; use mstd0.5, for example");
    draws.magnitude_std = parse_timm_config("rand-" + parts[i]).magnitude_std;
  }
  try {
    return std::make_unique<TimmAutoAugment>(timm_policy(parts.front()), draws, timm_fill(options, context));
  } catch (const std::out_of_range&) {
    throw ConfigError("'" + parts.front() + "' is not a policy of timm; use v0, v0r, original, originalr or 3a");
  }
}

TransformPtr make_auto_augment(const Section& options, const TransformContext& context) {
  if (!options.text("timm").empty()) return make_timm_auto_augment(options, context);
  return std::make_unique<AutoAugment>(torchvision_policy(options.text("policy")), filter_option(options),
                                       fill_option(options));
}

KeySpec bins_key() { return keys::integer("bins", "31", "Number of bins of the magnitudes", 2, 1000); }

}  // namespace

std::vector<TransformRow> policy_transforms() {
  const KeySpec filter = filter_key("nearest", affine_filter_names());
  return {
      {.name = "rand_augment",
       .help = "Several random operations of one magnitude (torchvision's, or timm's with timm=)",
       .keys = {keys::integer("ops", "2", "Number of operations", 1, kMaxAugmentOps),
                keys::integer("magnitude", "9", "Bin of the magnitude", 0, 999), bins_key(), filter, fill_key(),
                keys::text("timm", "",
                           "Configuration of timm, such as rand-m9-mstd0.5-inc1. The filter is then "
                           "random, and the fill is the mean color, unless they are given")},
       .is_random = true,
       .make = make_rand_augment},
      {.name = "trivial_augment_wide",
       .help = "One random operation of random magnitude",
       .keys = {bins_key(), filter, fill_key()},
       .is_random = true,
       .make = [](const Section& options, const TransformContext&) -> TransformPtr {
         return std::make_unique<UniformAugment>(AugmentSpace::trivial_augment_wide, 1, -1,
                                                 static_cast<int>(options.integer("bins")), filter_option(options),
                                                 fill_option(options));
       }},
      {.name = "auto_augment",
       .help = "A random pair of operations of a learned policy",
       .keys = {keys::choice("policy", "imagenet", "Policy of torchvision", {"imagenet", "cifar10", "svhn"}),
                keys::text("timm", "", "Policy of timm: v0, v0r, original, originalr or 3a, also with -mstd0.5"),
                filter, fill_key()},
       .is_random = true,
       .make = make_auto_augment},
  };
}

}  // namespace lockstep::data
