// SPDX-License-Identifier: BSD-3-Clause
// The operations and magnitudes of AutoAugment, RandAugment and TrivialAugmentWide, as torchvision and timm define
// them.
#pragma once

#include <lockstep/data/transform.hpp>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/image/geometry.hpp"

namespace lockstep::data {

// --- operations ---

/// An operation with one argument. The names of timm's operations begin with "timm ", because most arguments differ.
struct AugmentOp {
  const char* name;
  void (*apply)(Image& image, double argument, ResizeFilter filter, const Color& fill, Workspace& workspace);
};

std::span<const AugmentOp> augment_ops();

/// An operation that was drawn: a position in augment_ops().
struct DrawnOp {
  int op = 0;
  ResizeFilter filter = ResizeFilter::nearest;
  double argument = 0;
};

/// Maximum number of operations for one image.
inline constexpr int kMaxAugmentOps = 16;

/// @throws std::out_of_range  the name is unknown
int op_named(std::string_view name);
void apply_op(Image& image, const DrawnOp& drawn, const Color& fill, Workspace& workspace);

// --- torchvision ---

enum class AugmentSpace { auto_augment, rand_augment, trivial_augment_wide };

/// An operation of a space, by its position.
struct MagnitudeOp {
  const char* name;
  bool is_signed;  ///< negated with probability 1/2
};
MagnitudeOp magnitude_op(AugmentSpace space, std::size_t op);
std::size_t magnitude_op_count(AugmentSpace space);
/// The magnitude of one operation for a bin; 0 if it has no argument.
/// @param image  its size limits translations of auto_augment and rand_augment
double magnitude(AugmentSpace space, std::size_t op, int bin, int bins, ImageSize image);

/// A step of a policy.
struct PolicyStep {
  const char* op;
  double probability;
  int level;  ///< bin of torchvision, or level of timm; -1 = none
};

using PolicyPair = std::vector<PolicyStep>;

/// The 25 pairs of operations of torchvision's imagenet, cifar10 or svhn, or of timm's v0, v0r, original, originalr, or
/// the three of 3a. @throws std::out_of_range  another name
const std::vector<PolicyPair>& torchvision_policy(const std::string& name);
const std::vector<PolicyPair>& timm_policy(const std::string& name);

// --- timm ---

/// The largest translations.
struct TimmTranslation {
  double pixels = 100;
  double fraction = 0.45;
};

/// The argument of an operation for a level in [0, 10] (or more, up to mmax); nullopt = it has none.
/// @param name  without "timm "
/// @param sign  1 or -1, for operations that can be negated
std::optional<double> timm_argument(std::string_view name, double level, int sign,
                                    const TimmTranslation& translation = {});

/// A parsed configuration such as "rand-m9-mstd0.5-inc1".
struct AugmentConfig {
  int layers = 2;                ///< operations per image
  std::vector<std::string> ops;  ///< names without "timm "
  std::vector<double> weights;   ///< probabilities of `ops`; empty = uniform, with replacement
  double probability = 0.5;      ///< that an operation is applied
  double magnitude = 10;         ///< level
  double magnitude_std = 0;      ///< infinity = uniform in [0, magnitude]
  double magnitude_max = 0;      ///< 0 = 10
};

/// @throws ConfigError  malformed
AugmentConfig parse_timm_config(const std::string& text);

}  // namespace lockstep::data
