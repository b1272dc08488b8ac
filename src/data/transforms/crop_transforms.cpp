// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>

#include "data/image/resize.hpp"
#include "data/transforms/transforms.hpp"

namespace lockstep::data {

namespace {

std::string box_text(const Box& box) {
  return "top=" + std::to_string(box.top) + ", left=" + std::to_string(box.left) +
         ", height=" + std::to_string(box.height) + ", width=" + std::to_string(box.width);
}

/// The reduction by 1, 2, 4 or 8 after which a part still has at least the size of the output.
int max_reduction_for(ImageSize part, ImageSize out) {
  int reduction = 8;
  while (reduction > 1 && (part.height < out.height * reduction || part.width < out.width * reduction)) reduction /= 2;
  return reduction;
}

class Resize : public PixelTransform, public MaskTransform, public PartTransform, public ReducedTransform {
 public:
  explicit Resize(const Section& options)
      : filter_(filter_option(options)),
        max_size_(static_cast<int>(options.integer("max_size"))),
        mode_(options.text("mode") == "long"     ? SizeMode::long_side
              : options.text("mode") == "squash" ? SizeMode::squash
                                                 : SizeMode::short_side),
        size_(square_size(options)),
        has_two_sides_(options.integers("size").size() == 2) {
    if (max_size_ > 0 && (has_two_sides_ || mode_ != SizeMode::short_side)) {
      throw ConfigError("max_size requires one number as size, and mode=short");
    }
    if (max_size_ > 0 && max_size_ <= size_.height) throw ConfigError("max_size is not larger than size");
  }

  Parameters draw(random::Sequence&, ImageSize size) const override { return target(size); }
  ImageSize size_after(ImageSize, const Parameters& drawn) const override { return drawn.as<ImageSize>(); }
  std::optional<ImageSize> fixed_size(std::optional<ImageSize> before) const override {
    if (has_two_sides_ || mode_ == SizeMode::squash) return size_;
    return before ? std::optional(target(*before)) : std::nullopt;
  }
  void apply(Image& image, const Parameters& drawn, Workspace& workspace) const override {
    resize(image, drawn.as<ImageSize>(), filter_, workspace);
  }
  void apply_to_mask(Image& mask, const Parameters& drawn, Workspace& workspace) const override {
    resize(mask, drawn.as<ImageSize>(), ResizeFilter::nearest, workspace);
  }
  Box part_before(const Box& part, ImageSize before, const Parameters& drawn) const override {
    return resize_part_before(before, drawn.as<ImageSize>(), filter_, part);
  }
  void apply_part(Patch& patch, const Box& part, const Parameters& drawn, Workspace& workspace) const override {
    resize_part(patch, drawn.as<ImageSize>(), filter_, part, workspace);
  }
  int max_reduction(ImageSize before, const Parameters& drawn) const override {
    return max_reduction_for(before, drawn.as<ImageSize>());
  }
  Parameters reduced(const Parameters& drawn, ImageSize, ImageSize) const override { return drawn; }

 private:
  ImageSize target(ImageSize size) const {
    return has_two_sides_ ? size_ : resized_size(size, size_.height, max_size_, mode_);
  }

  ResizeFilter filter_;
  int max_size_;
  SizeMode mode_;
  ImageSize size_;
  bool has_two_sides_;
};

class CenterCrop : public PixelTransform, public MaskTransform, public PartTransform {
 public:
  explicit CenterCrop(const Section& options) : size_(square_size(options)) {}

  ImageSize size_after(ImageSize, const Parameters&) const override { return size_; }
  std::optional<ImageSize> fixed_size(std::optional<ImageSize>) const override { return size_; }
  void apply(Image& image, const Parameters&, Workspace& workspace) const override {
    center_crop(image, size_, {}, workspace.spare);
  }
  void apply_to_mask(Image& mask, const Parameters&, Workspace& workspace) const override {
    center_crop(mask, size_, kIgnoredColor, workspace.spare);
  }
  Box part_before(const Box& part, ImageSize before, const Parameters&) const override {
    if (pads(before)) return whole(before);
    const Box box = center_box(before, size_);
    return {box.top + part.top, box.left + part.left, part.height, part.width};
  }
  void apply_part(Patch& patch, const Box& part, const Parameters& drawn, Workspace& workspace) const override {
    if (pads(patch.full)) return apply_whole(*this, patch, part, drawn, workspace);
    patch.area = part;
    patch.full = size_;
  }

 private:
  bool pads(ImageSize image) const { return image.height < size_.height || image.width < size_.width; }

  ImageSize size_;
};

class RandomCrop : public PixelTransform, public MaskTransform, public PartTransform {
 public:
  explicit RandomCrop(const Section& options)
      : size_(square_size(options)),
        mode_(pad_mode(options.text("mode"))),
        fill_(fill_option(options)),
        pads_if_needed_(options.boolean("pad_if_needed")) {
    std::vector<int> sides;
    for (const std::int64_t side : options.integers("padding")) sides.push_back(static_cast<int>(side));
    if (sides.size() == 1) sides.push_back(sides[0]);
    if (sides.size() == 2) sides = {sides[0], sides[1], sides[0], sides[1]};
    if (sides.size() != 4) throw ConfigError("padding does not have 1, 2 (x,y) or 4 numbers (left,top,right,bottom)");
    padding_ = {sides[0], sides[1], sides[2], sides[3]};
  }

  Parameters draw(random::Sequence& random, ImageSize before) const override {
    const Padding padding = padding_for(before);
    const int rows = before.height + padding.top + padding.bottom - size_.height;
    const int columns = before.width + padding.left + padding.right - size_.width;
    if (rows < 0 || columns < 0) {
      throw DataError("the image has " + size_text(before) + " pixels (height x width), which is smaller than the " +
                      "random_crop of " + size_text(size_) + "; add resize before it, or pad_if_needed=true");
    }
    const auto below = [&random](int bound) {
      return static_cast<int>(random.below(static_cast<std::uint64_t>(bound)));
    };
    const int top = below(rows + 1);
    const int left = below(columns + 1);
    return Box{top, left, size_.height, size_.width};
  }
  std::string text(const Parameters& drawn) const override {
    const Box box = drawn.as<Box>();
    return "top=" + std::to_string(box.top) + ", left=" + std::to_string(box.left);
  }
  ImageSize size_after(ImageSize, const Parameters&) const override { return size_; }
  std::optional<ImageSize> fixed_size(std::optional<ImageSize>) const override { return size_; }
  void apply(Image& image, const Parameters& drawn, Workspace& workspace) const override {
    pad_and_crop(image, drawn, fill_, workspace);
  }
  void apply_to_mask(Image& mask, const Parameters& drawn, Workspace& workspace) const override {
    pad_and_crop(mask, drawn, kIgnoredColor, workspace);
  }
  Box part_before(const Box& part, ImageSize before, const Parameters& drawn) const override {
    const Box inner = box_in(before, drawn);
    if (!is_inside(inner, before)) return whole(before);
    return {inner.top + part.top, inner.left + part.left, part.height, part.width};
  }
  void apply_part(Patch& patch, const Box& part, const Parameters& drawn, Workspace& workspace) const override {
    if (!is_inside(box_in(patch.full, drawn), patch.full)) {
      return apply_whole(*this, patch, part, drawn, workspace);
    }
    patch.area = part;
    patch.full = size_;
  }

 private:
  void pad_and_crop(Image& image, const Parameters& drawn, const Color& fill, Workspace& workspace) const {
    const Padding padding = padding_for(image.size());
    if (padding.left + padding.top + padding.right + padding.bottom > 0) {
      pad(image, padding, mode_, fill, workspace.spare);
    }
    data::crop(image, drawn.as<Box>(), workspace.spare);
  }
  Padding padding_for(ImageSize before) const {
    Padding padding = padding_;
    if (!pads_if_needed_) return padding;
    const int columns = size_.width - (before.width + padding.left + padding.right);
    const int rows = size_.height - (before.height + padding.top + padding.bottom);
    padding.left += std::max(0, columns);
    padding.right += std::max(0, columns);
    padding.top += std::max(0, rows);
    padding.bottom += std::max(0, rows);
    return padding;
  }
  /// The crop in the image without padding.
  Box box_in(ImageSize before, const Parameters& drawn) const {
    Box box = drawn.as<Box>();
    const Padding padding = padding_for(before);
    box.top -= padding.top;
    box.left -= padding.left;
    return box;
  }
  static bool is_inside(const Box& box, ImageSize size) {
    return box.top >= 0 && box.left >= 0 && box.top + box.height <= size.height && box.left + box.width <= size.width;
  }

  ImageSize size_;
  PadMode mode_;
  Color fill_;
  bool pads_if_needed_;
  Padding padding_;
};

class RandomResizedCrop : public PixelTransform, public MaskTransform, public PartTransform, public ReducedTransform {
 public:
  RandomResizedCrop(ImageSize size, RealRange area, RealRange ratio, ResizeFilter filter)
      : size_(size), area_(area), ratio_(ratio), filter_(filter) {
    if (area[0] <= 0 || ratio[0] <= 0) throw ConfigError("scale and ratio must be positive");
  }
  explicit RandomResizedCrop(const Section& options)
      : RandomResizedCrop(square_size(options), range_option(options, "scale"), range_option(options, "ratio"),
                          filter_option(options)) {}
  Parameters draw(random::Sequence& random, ImageSize before) const override {
    return draw_resized_crop(random, before, area_, ratio_);
  }
  std::string text(const Parameters& drawn) const override { return box_text(drawn.as<Box>()); }
  ImageSize size_after(ImageSize, const Parameters&) const override { return size_; }
  std::optional<ImageSize> fixed_size(std::optional<ImageSize>) const override { return size_; }
  void apply(Image& image, const Parameters& drawn, Workspace& workspace) const override {
    data::crop(image, drawn.as<Box>(), workspace.spare);
    resize(image, size_, filter_, workspace);
  }
  void apply_to_mask(Image& mask, const Parameters& drawn, Workspace& workspace) const override {
    data::crop(mask, drawn.as<Box>(), workspace.spare);
    resize(mask, size_, ResizeFilter::nearest, workspace);
  }
  /// The crop comes first, so that its filter does not see pixels outside the box.
  Box part_before(const Box& part, ImageSize, const Parameters& drawn) const override {
    const Box box = drawn.as<Box>();
    Box inner = resize_part_before(box.size(), size_, filter_, part);
    inner.top += box.top;
    inner.left += box.left;
    return inner;
  }
  void apply_part(Patch& patch, const Box& part, const Parameters& drawn, Workspace& workspace) const override {
    const Box box = drawn.as<Box>();
    patch.area.top -= box.top;
    patch.area.left -= box.left;
    patch.full = box.size();
    resize_part(patch, size_, filter_, part, workspace);
  }
  int max_reduction(ImageSize, const Parameters& drawn) const override {
    return max_reduction_for(drawn.as<Box>().size(), size_);
  }
  /// Scales the box and rounds it outward.
  Parameters reduced(const Parameters& drawn, ImageSize from, ImageSize target) const override {
    const auto scale = [](int first, int count, int from_size, int to_size) {
      const double factor = static_cast<double>(to_size) / from_size;
      const int begin = std::max(0, static_cast<int>(std::floor(first * factor)));
      const int end = std::min(to_size, static_cast<int>(std::ceil((first + count) * factor)));
      return std::array<int, 2>{begin, end - begin};
    };
    const Box box = drawn.as<Box>();
    const auto rows = scale(box.top, box.height, from.height, target.height);
    const auto columns = scale(box.left, box.width, from.width, target.width);
    return Box{rows[0], columns[0], rows[1], columns[1]};
  }

 private:
  ImageSize size_;
  RealRange area_;
  RealRange ratio_;
  ResizeFilter filter_;
};

class MultiCrop : public MultiCropTransform {
 public:
  explicit MultiCrop(const Section& options) {
    const std::vector<std::int64_t> counts = options.integers("crops");
    const std::vector<std::int64_t> sizes = options.integers("sizes");
    const std::vector<double> scales = options.reals("scales");
    if (counts.empty() || sizes.size() != counts.size() || scales.size() != 2 * counts.size()) {
      throw ConfigError("crops, sizes and scales do not match; each group of crops has a number, a size and a range " +
                        std::string("low,high, such as crops=2,6,sizes=224,96,scales=0.14,1,0.05,0.14"));
    }
    const RealRange ratio = range_option(options, "ratio");
    for (std::size_t group = 0; group < counts.size(); ++group) {
      const auto size = static_cast<int>(sizes[group]);
      const RealRange area = {scales[2 * group], scales[2 * group + 1]};
      if (area[0] > area[1]) throw ConfigError("scales are not ranges low,high");
      for (std::int64_t i = 0; i < counts[group]; ++i) {
        crops_.emplace_back(ImageSize{size, size}, area, ratio, filter_option(options));
      }
    }
  }

  int crops() const override { return static_cast<int>(crops_.size()); }
  const PixelTransform& crop(int i) const override { return crops_[static_cast<std::size_t>(i)]; }

 private:
  std::vector<RandomResizedCrop> crops_;
};

const char* const kRatios = "0.75,1.3333333333333333";

KeySpec scale_key(const std::string& default_value) {
  return keys::reals("scale", default_value, "Range of the area of the crop, as fractions of the area of the image", 0,
                     1);
}

KeySpec ratio_key() { return keys::reals("ratio", kRatios, "Range of width / height of the crop", 0, 1e6); }

}  // namespace

std::vector<TransformRow> crop_transforms() {
  return {
      {.name = "resize",
       .help = "Resizes with antialiasing, exactly as Pillow",
       .keys = {size_key("Size of the short side (mode=short), the long side or both."),
                keys::integer("max_size", "0", "Limit of the long side; 0 = unlimited", 0, 65535),
                filter_key("bilinear", filter_names()),
                keys::choice("mode", "short",
                             "Meaning of a single size: that of the short side, of the long side, or "
                             "of both sides without regard to the ratio",
                             {"short", "long", "squash"})},
       .masks = MaskUse::moved,
       .make = make_from_options<Resize>()},
      {.name = "center_crop",
       .help = "Cuts out the center; a smaller image is padded with 0",
       .keys = {size_key("Size of the crop.")},
       .masks = MaskUse::moved,
       .make = make_from_options<CenterCrop>()},
      {.name = "random_crop",
       .help = "Pads, and cuts out a box at a random position",
       .keys = {size_key("Size of the crop."),
                keys::integers("padding", "0",
                               "Pixels added on each side: one number, two (x,y) or four (left,top,right,bottom)", 0,
                               65535),
                keys::choice("mode", "constant", "Values of added pixels", pad_mode_names()), fill_key(),
                keys::boolean("pad_if_needed", "false", "Pad images that are smaller than the crop")},
       .is_random = true,
       .masks = MaskUse::moved,
       .make = make_from_options<RandomCrop>()},
      {.name = "random_resized_crop",
       .help = "Cuts out a box of random area, shape and position, and resizes it",
       .keys = {size_key("Size of the result."), scale_key("0.08,1"), ratio_key(),
                filter_key("bilinear", filter_names())},
       .is_random = true,
       .masks = MaskUse::moved,
       .make = make_from_options<RandomResizedCrop>()},
      {.name = "multi_crop",
       .help = "Several images per sample: each is a random_resized_crop, followed by the remaining lines",
       .keys = {keys::integers("crops", "2,6", "Number of crops of each group", 1, 64),
                keys::integers("sizes", "224,96", "Size of the crops of each group", 1, 65535),
                keys::reals("scales", "0.14,1,0.05,0.14", "Range of the area of each group: low,high,low,high...", 0,
                            1),
                ratio_key(), filter_key("bilinear", filter_names())},
       .stage = TransformStage::crops,
       .is_random = true,
       .make = make_from_options<MultiCrop>()},
  };
}

}  // namespace lockstep::data
