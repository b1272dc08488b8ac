// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <array>
#include <functional>

#include "core/text/text.hpp"
#include "data/image/blur.hpp"
#include "data/image/color.hpp"
#include "data/transforms/transforms.hpp"

namespace lockstep::data {

namespace {

constexpr std::array<const char*, 4> kJitterNames = {"brightness", "contrast", "saturation", "hue"};

class RandomColorJitter : public PixelTransform {
 public:
  explicit RandomColorJitter(const Section& options) : probability_(options.real("p")) {
    for (std::size_t i = 0; i < kJitterNames.size(); ++i) {
      const bool is_hue = i == 3;
      try {
        ranges_[i] = jitter_range(options.reals(kJitterNames[i]), is_hue ? 0 : 1,
                                  is_hue ? RealRange{-0.5, 0.5} : RealRange{0, keys::kUnlimited});
      } catch (const ConfigError& error) {
        throw ConfigError(std::string(kJitterNames[i]) + ": " + error.what());
      }
    }
  }

  Parameters draw(random::Sequence& random, ImageSize) const override {
    ColorJitter drawn{};
    if (!coin(random, probability_)) return drawn;
    for (std::size_t i = drawn.order.size() - 1; i > 0; --i) {  // Fisher-Yates
      std::swap(drawn.order[i], drawn.order[random.below(i + 1)]);
    }
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
      drawn.uses[i] = ranges_[i].has_value();
      if (ranges_[i]) drawn.factors[i] = uniform_float(random, *ranges_[i]);
    }
    return drawn;
  }
  std::string text(const Parameters& drawn) const override {
    const auto jitter = drawn.as<ColorJitter>();
    std::vector<std::string> texts;
    for (const std::int8_t kind : jitter.order) {
      const auto i = static_cast<std::size_t>(kind);
      if (jitter.uses[i]) texts.push_back(kJitterNames[i] + ("=" + number_text(jitter.factors[i], 3)));
    }
    return joined(texts);
  }
  void apply(Image& image, const Parameters& drawn, Workspace&) const override {
    apply_jitter(image, drawn.as<ColorJitter>());
  }

 private:
  double probability_;
  std::array<std::optional<RealRange>, 4> ranges_;
};

/// The drawn standard deviation; nullopt = no blur.
using BlurSigma = std::optional<float>;

class RandomBlur : public PixelTransform {
 public:
  explicit RandomBlur(const Section& options)
      : probability_(options.real("p")),
        kernel_(static_cast<int>(options.integer("kernel"))),
        sigma_(range_option(options, "sigma")),
        is_pil_(options.text("kind") == "pil") {
    if (kernel_ % 2 == 0) throw ConfigError("kernel must be odd");
    if (sigma_[0] <= 0) throw ConfigError("sigma must be positive");
  }

  Parameters draw(random::Sequence& random, ImageSize) const override {
    return coin(random, probability_) ? BlurSigma(uniform_float(random, sigma_)) : BlurSigma();
  }
  std::string text(const Parameters& drawn) const override {
    const auto sigma = drawn.as<BlurSigma>();
    return sigma ? "sigma=" + number_text(*sigma, 3) : "";
  }
  void apply(Image& image, const Parameters& drawn, Workspace& workspace) const override {
    const auto sigma = drawn.as<BlurSigma>();
    if (!sigma) return;
    is_pil_ ? gaussian_blur_pil(image, *sigma, workspace) : gaussian_blur(image, kernel_, *sigma, workspace);
  }

 private:
  double probability_;
  int kernel_;
  RealRange sigma_;
  bool is_pil_;
};

/// A change without random parameters, which is applied with a probability.
class RandomChange : public PixelTransform {
 public:
  using Change = std::function<void(Image&, Workspace&)>;

  RandomChange(double probability, Change change) : probability_(probability), change_(std::move(change)) {}

  Parameters draw(random::Sequence& random, ImageSize) const override { return coin(random, probability_); }
  std::string text(const Parameters& drawn) const override { return drawn.as<bool>() ? "yes" : ""; }
  void apply(Image& image, const Parameters& drawn, Workspace& workspace) const override {
    if (drawn.as<bool>()) change_(image, workspace);
  }

 private:
  double probability_;
  Change change_;
};

/// A row for a RandomChange. @param make_change  the change for the options of a line
TransformRow change_row(const std::string& name, const std::string& help, const std::string& probability,
                        KeySpecs more_keys, std::function<RandomChange::Change(const Section&)> make_change) {
  more_keys.insert(more_keys.begin(), probability_key(probability));
  return {.name = name,
          .help = help,
          .keys = std::move(more_keys),
          .is_random = true,
          .masks = MaskUse::unchanged,
          .make = [make_change](const Section& options, const TransformContext&) -> std::unique_ptr<Transform> {
            return std::make_unique<RandomChange>(options.real("p"), make_change(options));
          }};
}

RandomChange::Change plain(void (*change)(Image&)) {
  return [change](Image& image, Workspace&) { change(image); };
}

KeySpec jitter_key(const char* name) {
  return keys::reals(name, "0", "Range of the factor: x for max(0, 1-x),1+x, or low,high", 0, 1e6);
}

}  // namespace

std::vector<TransformRow> color_transforms() {
  return {
      {.name = "color_jitter",
       .help = "Changes brightness, contrast, saturation and hue in random order",
       .keys = {jitter_key("brightness"), jitter_key("contrast"), jitter_key("saturation"),
                keys::reals("hue", "0", "Range of the shift of the hue: x for -x,x, or low,high", -0.5, 0.5),
                probability_key("1")},
       .is_random = true,
       .masks = MaskUse::unchanged,
       .make = make_from_options<RandomColorJitter>()},
      change_row("grayscale", "Replaces colors by their luminance", "0.1", {},
                 [](const Section&) { return plain(to_grayscale); }),
      {.name = "gaussian_blur",
       .help = "Blurs with a Gaussian kernel",
       .keys = {probability_key("0.5"),
                keys::integer("kernel", "23", "Size of the kernel in pixels, odd (kind=torchvision)", 1,
                              kMaxBlurKernel),
                keys::reals("sigma", "0.1,2", "Range of the standard deviation in pixels", 0, 1e3),
                keys::choice("kind", "torchvision",
                             "torchvision = a kernel of limited size; pil = Pillow's three box "
                             "blurs",
                             {"torchvision", "pil"})},
       .is_random = true,
       .masks = MaskUse::unchanged,
       .make = make_from_options<RandomBlur>()},
      change_row("solarize", "Inverts bytes above a threshold", "0.5",
                 {keys::real("threshold", "128", "Smallest byte that is inverted", 0, 256)},
                 [](const Section& options) -> RandomChange::Change {
                   return [threshold = options.real("threshold")](Image& image, Workspace&) {
                     solarize(image, threshold);
                   };
                 }),
      change_row("invert", "Inverts all bytes", "0.5", {}, [](const Section&) { return plain(invert); }),
      change_row("equalize", "Makes the values of each channel equally frequent", "0.5", {},
                 [](const Section&) { return plain(equalize); }),
      change_row("autocontrast", "Stretches the values of each channel to 0 ... 255", "0.5", {},
                 [](const Section&) { return plain(autocontrast); }),
      change_row("posterize", "Keeps the upper bits of each byte", "0.5",
                 {keys::integer("bits", "4", "Number of bits; 0 = black", 0, 8)},
                 [](const Section& options) -> RandomChange::Change {
                   return [bits = static_cast<int>(options.integer("bits"))](Image& image, Workspace&) {
                     posterize(image, bits);
                   };
                 }),
      change_row("sharpness", "Sharpens or smooths", "0.5",
                 {keys::real("factor", "2", "0 = smoothed, 1 = unchanged, more = sharper", 0, 1e3)},
                 [](const Section& options) -> RandomChange::Change {
                   return [factor = options.real("factor")](Image& image, Workspace& workspace) {
                     adjust_sharpness(image, factor, workspace.spare);
                   };
                 }),
  };
}

}  // namespace lockstep::data
