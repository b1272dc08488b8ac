// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "data/image/blur.hpp"
#include "data/image/color.hpp"
#include "data/transforms/policies.hpp"

namespace lockstep::data {

namespace {

using Op = AugmentOp;

/// Creates operations that use the image and the argument only.
template <auto kFunction>
void with_argument(Image& image, double v, ResizeFilter, const Color&, Workspace&) {
  kFunction(image, v);
}

template <auto kFunction>
void without_argument(Image& image, double, ResizeFilter, const Color&, Workspace&) {
  kFunction(image);
}

/// torchvision's factor is 1 + magnitude.
template <auto kFunction>
void with_factor(Image& image, double v, ResizeFilter, const Color&, Workspace&) {
  kFunction(image, 1.0 + v);
}

void posterize_bits(Image& image, double bits) { posterize(image, static_cast<int>(bits)); }
void solarize_from(Image& image, double threshold) { solarize(image, threshold); }
void solarize_fraction(Image& image, double fraction) { solarize(image, 255 * fraction); }
void add_below_128(Image& image, double add) { solarize_add(image, static_cast<int>(add)); }
void desaturate(Image& image, double factor) { adjust_saturation(image, std::clamp(1.0 - factor, 0.0, 1.0)); }
void nothing(Image&) {}

/// torchvision's shear: the slope takes the way over an angle in degrees.
template <bool kIsX>
void op_shear(Image& image, double slope, ResizeFilter filter, const Color& fill, Workspace& workspace) {
  const double degrees = std::atan(slope) * (180.0 / std::numbers::pi);
  const AffineParameters parameters{.shear_x = kIsX ? degrees : 0, .shear_y = kIsX ? 0 : degrees};
  affine(image, affine_matrix(parameters, 0, 0), filter, fill, workspace.spare);
}

/// torchvision's translation by whole pixels.
template <bool kIsX>
void op_translate(Image& image, double v, ResizeFilter filter, const Color& fill, Workspace& workspace) {
  const double pixels = std::trunc(v);
  const AffineParameters parameters{.translate_x = kIsX ? pixels : 0, .translate_y = kIsX ? 0 : pixels};
  affine(image, affine_matrix(parameters, image.width * 0.5, image.height * 0.5), filter, fill, workspace.spare);
}

void op_rotate(Image& image, double v, ResizeFilter filter, const Color& fill, Workspace& workspace) {
  rotate(image, v, filter, fill, workspace.spare);
}
void op_sharpness(Image& image, double v, ResizeFilter, const Color&, Workspace& workspace) {
  adjust_sharpness(image, 1.0 + v, workspace.spare);
}
void op_timm_sharpness(Image& image, double v, ResizeFilter, const Color&, Workspace& workspace) {
  adjust_sharpness(image, v, workspace.spare);
}
template <bool kIsX>
void op_timm_shear(Image& image, double v, ResizeFilter filter, const Color& fill, Workspace& workspace) {
  affine(image, {1, kIsX ? v : 0, 0, kIsX ? 0 : v, 1, 0}, filter, fill, workspace.spare);
}

template <bool kIsX>
void op_timm_translate(Image& image, double v, ResizeFilter filter, const Color& fill, Workspace& workspace) {
  affine(image, {1, 0, kIsX ? v : 0, 0, 1, kIsX ? 0 : v}, filter, fill, workspace.spare);
}

template <bool kIsX>
void op_timm_translate_part(Image& image, double v, ResizeFilter filter, const Color& fill, Workspace& workspace) {
  op_timm_translate<kIsX>(image, v * (kIsX ? image.width : image.height), filter, fill, workspace);
}

void op_blur(Image& image, double v, ResizeFilter, const Color&, Workspace& workspace) {
  gaussian_blur_pil(image, v, workspace);
}

constexpr std::array<Op, 42> kOps = {{
    {"Identity", without_argument<nothing>},
    {"ShearX", op_shear<true>},
    {"ShearY", op_shear<false>},
    {"TranslateX", op_translate<true>},
    {"TranslateY", op_translate<false>},
    {"Rotate", op_rotate},
    {"Brightness", with_factor<adjust_brightness>},
    {"Color", with_factor<adjust_saturation>},
    {"Contrast", with_factor<adjust_contrast>},
    {"Sharpness", op_sharpness},
    {"Posterize", with_argument<posterize_bits>},
    {"Solarize", with_argument<solarize_fraction>},
    {"AutoContrast", without_argument<autocontrast>},
    {"Equalize", without_argument<equalize>},
    {"Invert", without_argument<invert>},
    {"timm AutoContrast", without_argument<autocontrast>},
    {"timm Equalize", without_argument<equalize>},
    {"timm Invert", without_argument<invert>},
    {"timm Rotate", op_rotate},
    {"timm Posterize", with_argument<posterize_bits>},
    {"timm PosterizeIncreasing", with_argument<posterize_bits>},
    {"timm PosterizeOriginal", with_argument<posterize_bits>},
    {"timm Solarize", with_argument<solarize_from>},
    {"timm SolarizeIncreasing", with_argument<solarize_from>},
    {"timm SolarizeAdd", with_argument<add_below_128>},
    {"timm Color", with_argument<adjust_saturation>},
    {"timm ColorIncreasing", with_argument<adjust_saturation>},
    {"timm Contrast", with_argument<adjust_contrast>},
    {"timm ContrastIncreasing", with_argument<adjust_contrast>},
    {"timm Brightness", with_argument<adjust_brightness>},
    {"timm BrightnessIncreasing", with_argument<adjust_brightness>},
    {"timm Sharpness", op_timm_sharpness},
    {"timm SharpnessIncreasing", op_timm_sharpness},
    {"timm ShearX", op_timm_shear<true>},
    {"timm ShearY", op_timm_shear<false>},
    {"timm TranslateX", op_timm_translate<true>},
    {"timm TranslateY", op_timm_translate<false>},
    {"timm TranslateXRel", op_timm_translate_part<true>},
    {"timm TranslateYRel", op_timm_translate_part<false>},
    {"timm Desaturate", with_argument<desaturate>},
    {"timm GaussianBlur", op_blur},
    {"timm GaussianBlurRand", op_blur},
}};

}  // namespace

std::span<const AugmentOp> augment_ops() { return kOps; }

int op_named(std::string_view name) {
  const auto found = std::find_if(kOps.begin(), kOps.end(), [name](const Op& op) { return op.name == name; });
  if (found == kOps.end()) throw std::out_of_range("no operation " + std::string(name));
  return static_cast<int>(found - kOps.begin());
}

void apply_op(Image& image, const DrawnOp& drawn, const Color& fill, Workspace& workspace) {
  kOps[static_cast<std::size_t>(drawn.op)].apply(image, drawn.argument, drawn.filter, fill, workspace);
}

}  // namespace lockstep::data
