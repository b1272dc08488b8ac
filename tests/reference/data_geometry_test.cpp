// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <numbers>

#include "data/image/geometry.hpp"
#include "data/image/resize.hpp"
#include "data/transforms/policies.hpp"
#include "data/transforms/transforms.hpp"
#include "reference/data.hpp"

namespace lockstep::testing::reference {

namespace {

using data::ImageSize;

ImageSize size_of(const Json& height_width) { return {height_width.at(0), height_width.at(1)}; }

/// A list, or one number for all channels.
data::Color color_of(const Json& fill) {
  if (fill.is_number()) {
    const auto value = fill.get<std::uint8_t>();
    return {value, value, value};
  }
  return {fill.at(0), fill.at(1), fill.at(2)};
}

void apply_geometry(data::Image& image, const std::string& op, const Json& params, data::Workspace& workspace) {
  data::Image& spare = workspace.spare;
  const data::ResizeFilter filter = data::filter_named(params.value("filter", "nearest"));
  const data::Color fill = params.contains("fill") ? color_of(params.at("fill")) : data::Color{};
  const auto apply_op = [&](const std::string& name, double argument) {
    data::apply_op(image, {data::op_named(name), filter, argument}, fill, workspace);
  };
  if (op == "horizontal_flip") return data::flip_horizontally(image);
  if (op == "vertical_flip") return data::flip_vertically(image);
  if (op == "center_crop") {
    const Json& size = params.at("size");
    return data::center_crop(image, size.is_array() ? size_of(size) : ImageSize{size, size}, {}, spare);
  }
  if (op == "pad") {
    const Json& p = params.at("left_top_right_bottom");
    return data::pad(image, {p.at(0), p.at(1), p.at(2), p.at(3)}, data::pad_mode(params.at("mode")), fill, spare);
  }
  if (op == "random_crop") {
    const int padding = params.at("padding");
    data::pad(image, {padding, padding, padding, padding}, data::pad_mode(params.at("mode")), fill, spare);
    return data::crop(image, {params.at("top"), params.at("left"), params.at("size"), params.at("size")}, spare);
  }
  if (op == "rotate") return data::rotate(image, params.at("degrees"), filter, fill, spare);
  if (op == "affine_matrix") return data::affine(image, params.at("matrix"), filter, fill, spare);
  if (op == "torchvision_shear_x") return apply_op("ShearX", params.at("magnitude"));
  if (op == "torchvision_shear_y") return apply_op("ShearY", params.at("magnitude"));
  if (op == "torchvision_translate_x") return apply_op("TranslateX", params.at("magnitude"));
  if (op == "torchvision_translate_y") return apply_op("TranslateY", params.at("magnitude"));
  if (op == "timm_shear_x") return apply_op("timm ShearX", params.at("value"));
  if (op == "timm_shear_y") return apply_op("timm ShearY", params.at("value"));
  if (op == "timm_translate_x_rel") return apply_op("timm TranslateXRel", params.at("value"));
  if (op == "timm_translate_y_rel") return apply_op("timm TranslateYRel", params.at("value"));
  if (op == "timm_rotate") return apply_op("timm Rotate", params.at("value"));
  throw std::runtime_error("no test knows the operation " + op);
}

}  // namespace

void run_resize_case(const Json& one_case) {
  require_known_fields(one_case,
                       {"image", "out_hw", "filter", "sha256", "pixels", "torchvision_uint8_tensor_max_difference"});
  data::Workspace workspace;
  data::Image image = load_image("resize/" + one_case.at("image").get<std::string>() + ".npy");
  data::resize(image, size_of(one_case.at("out_hw")), data::filter_named(one_case.at("filter")), workspace);
  expect_digest(image, one_case, "pixels");
}

void check_resized_crops() {
  const Json document = load("data/resize.json");
  for (const Json& entry : document.at("resized_crop")) {
    require_known_fields(entry, {"image", "box_ltrb", "out_hw", "filter", "crop_then_resize", "sha256",
                                 "resize_with_box_differs_by_at_most"});
    data::Workspace workspace;
    data::Image image = load_image("resize/" + entry.at("image").get<std::string>() + ".npy");
    const std::array<int, 4> box = entry.at("box_ltrb");
    data::crop(image, {box[1], box[0], box[3] - box[1], box[2] - box[0]}, workspace.spare);
    data::resize(image, size_of(entry.at("out_hw")), data::filter_named(entry.at("filter")), workspace);
    expect_digest(image, entry, "crop_then_resize");
  }
}

void check_size_rule() {
  constexpr int kMargin = 20;  // the results show that max_size is size + 20 in this file
  const Json document = load("data/resize.json");
  for (const Json& entry : document.at("rule")) {
    require_known_fields(entry, {"image_hw", "size", "out_hw", "with_max_size"});
    const ImageSize image = size_of(entry.at("image_hw"));
    const int size = entry.at("size");
    const auto rule = [&](int max_size) {
      return data::resized_size(image, size, max_size, data::SizeMode::short_side);
    };
    EXPECT_EQ(rule(0), size_of(entry.at("out_hw"))) << entry;
    EXPECT_EQ(rule(size + kMargin), size_of(entry.at("with_max_size"))) << entry;
  }
}

void run_geometry_case(const Json& one_case) {
  require_known_fields(one_case, {"image", "op", "params", "out_hw", "sha256", "pixels"});
  data::Workspace workspace;
  data::Image image = load_image("geometry/" + one_case.at("image").get<std::string>() + ".npy");
  apply_geometry(image, one_case.at("op"), one_case.at("params"), workspace);
  EXPECT_EQ(image.size(), size_of(one_case.at("out_hw")));
  expect_digest(image, one_case, "pixels");
}

void check_crops() {
  const Json document = load("data/crops.json");
  for (const Json& entry : document.at("random_resized_crop")) {
    require_known_fields(entry, {"image_hw", "scale", "ratio", "attempts", "fell_back", "box"});
    const ImageSize image = size_of(entry.at("image_hw"));
    const Json& box = entry.at("box");
    for (const Json& attempt : entry.at("attempts")) {
      const auto fit = data::resized_crop_size(image, {attempt.at("area_fraction"), attempt.at("log_ratio")});
      EXPECT_EQ(fit.has_value(), attempt.at("fits").get<bool>()) << attempt;
      if (!fit) continue;
      EXPECT_EQ(*fit, (ImageSize{attempt.at("h"), attempt.at("w")})) << attempt;
      EXPECT_EQ(*fit, (ImageSize{box.at("height"), box.at("width")})) << attempt;
      EXPECT_EQ(attempt.at("top"), box.at("top"));
      EXPECT_EQ(attempt.at("left"), box.at("left"));
    }
    if (!entry.at("fell_back").get<bool>()) continue;
    const data::Box expected{box.at("top"), box.at("left"), box.at("height"), box.at("width")};
    EXPECT_EQ(data::central_box(image, entry.at("ratio")), expected) << entry;
  }
  for (const Json& entry : document.at("random_erasing")) {
    require_known_fields(entry, {"image_hw", "scale", "ratio", "attempts", "erased", "box"});
    bool erases = false;
    for (const Json& attempt : entry.at("attempts")) {
      const auto fit =
          data::erasing_size(size_of(entry.at("image_hw")), {attempt.at("area_fraction"), attempt.at("log_ratio")});
      EXPECT_EQ(fit.has_value(), attempt.at("fits").get<bool>()) << attempt;
      if (!fit) continue;
      erases = true;
      EXPECT_EQ(*fit, (ImageSize{attempt.at("h"), attempt.at("w")})) << attempt;
    }
    EXPECT_EQ(erases, entry.at("erased").get<bool>());
  }
  for (const Json& entry : document.at("jitter_range")) {
    require_known_fields(entry, {"given", "range"});
    const Json& given = entry.at("given");
    const std::vector<double> option =
        given.is_array() ? given.get<std::vector<double>>() : std::vector{given.get<double>()};
    const auto range = data::jitter_range(option, 1, {0, 1e9});
    EXPECT_EQ(range ? Json(*range) : Json(), entry.at("range"));
  }
}

}  // namespace lockstep::testing::reference
