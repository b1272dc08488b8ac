// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <cmath>

#include "core/text/text.hpp"
#include "data/transforms/transforms.hpp"

namespace lockstep::data {

namespace {

template <bool kIsHorizontal>
class Flip : public PixelTransform, public MaskTransform, public PartTransform {
 public:
  explicit Flip(const Section& options) : probability_(options.real("p")) {}

  Parameters draw(random::Sequence& random, ImageSize) const override { return coin(random, probability_); }
  std::string text(const Parameters& drawn) const override { return drawn.as<bool>() ? "yes" : ""; }
  void apply(Image& image, const Parameters& drawn, Workspace&) const override {
    if (!drawn.as<bool>()) return;
    kIsHorizontal ? flip_horizontally(image) : flip_vertically(image);
  }
  void apply_to_mask(Image& mask, const Parameters& drawn, Workspace& workspace) const override {
    apply(mask, drawn, workspace);
  }
  Box part_before(const Box& part, ImageSize before, const Parameters& drawn) const override {
    if (!drawn.as<bool>()) return part;
    Box box = part;
    if (kIsHorizontal) {
      box.left = before.width - part.left - part.width;
    } else {
      box.top = before.height - part.top - part.height;
    }
    return box;
  }
  void apply_part(Patch& patch, const Box& part, const Parameters& drawn, Workspace& workspace) const override {
    apply(patch.image, drawn, workspace);
    patch.area = part;
  }

 private:
  double probability_;
};

class RandomRotation : public PixelTransform, public MaskTransform {
 public:
  explicit RandomRotation(const Section& options)
      : degrees_(symmetric_option(options, "degrees")), filter_(filter_option(options)), fill_(fill_option(options)) {}

  Parameters draw(random::Sequence& random, ImageSize) const override {
    return static_cast<double>(uniform_float(random, degrees_));
  }
  std::string text(const Parameters& drawn) const override { return number_text(drawn.as<double>(), 4) + " degrees"; }
  void apply(Image& image, const Parameters& drawn, Workspace& workspace) const override {
    rotate(image, drawn.as<double>(), filter_, fill_, workspace.spare);
  }
  void apply_to_mask(Image& mask, const Parameters& drawn, Workspace& workspace) const override {
    rotate(mask, drawn.as<double>(), ResizeFilter::nearest, kIgnoredColor, workspace.spare);
  }

 private:
  RealRange degrees_;
  ResizeFilter filter_;
  Color fill_;
};

class RandomAffine : public PixelTransform, public MaskTransform {
 public:
  explicit RandomAffine(const Section& options)
      : degrees_(symmetric_option(options, "degrees")),
        translate_(options.reals("translate")),
        scale_(range_option(options, "scale")),
        shear_(options.reals("shear")),
        filter_(filter_option(options)),
        fill_(fill_option(options)) {
    if (translate_.size() == 1) translate_.push_back(translate_[0]);
    if (translate_.size() != 2) throw ConfigError("translate does not have one number or two (x,y)");
    if (scale_[0] <= 0) throw ConfigError("scale must be positive");
    if (shear_.size() == 1) shear_ = {-shear_[0], shear_[0]};
    if (shear_.size() == 2) shear_.insert(shear_.end(), {0.0, 0.0});
    if (shear_.size() != 4) throw ConfigError("shear does not have 1, 2 (x range) or 4 numbers (x and y range)");
  }

  Parameters draw(random::Sequence& random, ImageSize size) const override {
    AffineParameters drawn;
    drawn.degrees = uniform_float(random, degrees_);
    drawn.translate_x = shift(random, translate_[0] * size.width);
    drawn.translate_y = shift(random, translate_[1] * size.height);
    drawn.scale = uniform_float(random, scale_);
    drawn.shear_x = uniform_float(random, {shear_[0], shear_[1]});
    drawn.shear_y = uniform_float(random, {shear_[2], shear_[3]});
    return drawn;
  }
  std::string text(const Parameters& drawn) const override {
    const auto values = drawn.as<AffineParameters>();
    return number_text(values.degrees, 4) + " degrees, shift " + number_text(values.translate_x) + "/" +
           number_text(values.translate_y) + ", scale " + number_text(values.scale, 4) + ", shear " +
           number_text(values.shear_x, 4) + "/" + number_text(values.shear_y, 4);
  }
  void apply(Image& image, const Parameters& drawn, Workspace& workspace) const override {
    affine(image, matrix_of(drawn, image), filter_, fill_, workspace.spare);
  }
  void apply_to_mask(Image& mask, const Parameters& drawn, Workspace& workspace) const override {
    affine(mask, matrix_of(drawn, mask), ResizeFilter::nearest, kIgnoredColor, workspace.spare);
  }

 private:
  static AffineMatrix matrix_of(const Parameters& drawn, const Image& image) {
    return affine_matrix(drawn.as<AffineParameters>(), image.width * 0.5, image.height * 0.5);
  }
  static double shift(random::Sequence& random, double limit) {
    return std::nearbyint(uniform_float(random, {-limit, limit}));
  }

  RealRange degrees_;
  std::vector<double> translate_;
  RealRange scale_;
  std::vector<double> shear_;
  ResizeFilter filter_;
  Color fill_;
};

}  // namespace

std::vector<TransformRow> geometry_transforms() {
  const KeySpec filter = filter_key("nearest", affine_filter_names());
  return {
      {.name = "horizontal_flip",
       .help = "Exchanges left and right",
       .keys = {probability_key("0.5")},
       .is_random = true,
       .masks = MaskUse::moved,
       .make = make_from_options<Flip<true>>()},
      {.name = "vertical_flip",
       .help = "Exchanges top and bottom",
       .keys = {probability_key("0.5")},
       .is_random = true,
       .masks = MaskUse::moved,
       .make = make_from_options<Flip<false>>()},
      {.name = "rotate",
       .help = "Rotates about the center",
       .keys = {keys::reals("degrees", "30", "Range of the angle: x for -x,x, or low,high", -1e6, 1e6), filter,
                fill_key()},
       .is_random = true,
       .masks = MaskUse::moved,
       .make = make_from_options<RandomRotation>()},
      {.name = "affine",
       .help = "Rotates, shifts, scales and shears about the center",
       .keys = {keys::reals("degrees", "0", "Range of the angle: x for -x,x, or low,high", -1e6, 1e6),
                keys::reals("translate", "0",
                            "Largest shift as a fraction of width and height: one number, or two (x,y)", 0, 1),
                keys::reals("scale", "1,1", "Range of the scale", 0, 1e6),
                keys::reals("shear", "0",
                            "Range of the shear in degrees: x for -x,x, low,high, or four numbers for x "
                            "and y",
                            -89, 89),
                filter, fill_key()},
       .is_random = true,
       .masks = MaskUse::moved,
       .make = make_from_options<RandomAffine>()},
  };
}

}  // namespace lockstep::data
