// SPDX-License-Identifier: BSD-3-Clause
#include "data/image/blur.hpp"
#include "data/image/color.hpp"
#include "data/transforms/pipeline.hpp"
#include "reference/data.hpp"

namespace lockstep::testing::reference {

namespace {

void apply_color(data::Image& image, const std::string& op, const Json& params, data::Workspace& workspace) {
  if (op == "brightness") return data::adjust_brightness(image, params.at("factor"));
  if (op == "contrast") return data::adjust_contrast(image, params.at("factor"));
  if (op == "saturation") return data::adjust_saturation(image, params.at("factor"));
  if (op == "sharpness") return data::adjust_sharpness(image, params.at("factor"), workspace.spare);
  if (op == "hue") return data::adjust_hue(image, params.at("factor"));
  if (op == "posterize") return data::posterize(image, params.at("bits"));
  if (op == "solarize") return data::solarize(image, params.at("threshold"));
  if (op == "solarize_add") return data::solarize_add(image, params.at("add"), params.at("threshold"));
  if (op == "autocontrast") return data::autocontrast(image);
  if (op == "equalize") return data::equalize(image);
  if (op == "invert") return data::invert(image);
  if (op == "grayscale") return data::to_grayscale(image);
  if (op == "gaussian_blur") return data::gaussian_blur(image, params.at("kernel"), params.at("sigma"), workspace);
  if (op == "gaussian_blur_pil") return data::gaussian_blur_pil(image, params.at("radius"), workspace);
  throw std::runtime_error("no test knows the operation " + op);
}

}  // namespace

void run_color_case(const Json& one_case) {
  require_known_fields(one_case,
                       {"image", "op", "params", "sha256", "pixels", "kernel_1d", "torchvision_tensor_max_difference"});
  const std::string op = one_case.at("op");
  const Json& params = one_case.at("params");
  data::Workspace workspace;
  data::Image image = load_image("colour/" + one_case.at("image").get<std::string>() + ".npy");
  apply_color(image, op, params, workspace);
  if (op.starts_with("gaussian_blur")) {  // the tolerance that the file states
    expect_image(image, load_image(one_case.at("pixels")), 1, one_case.dump());
  } else {
    expect_digest(image, one_case, "pixels");
  }
  if (!one_case.contains("kernel_1d")) return;
  const std::vector<float> kernel = data::gaussian_kernel(params.at("kernel"), params.at("sigma"));
  // Rounding errors of float32: exponentials and their sum are computed in another way there.
  expect_close({kernel.begin(), kernel.end()}, numbers(one_case.at("kernel_1d")).data, {.absolute = 1e-7}, "kernel");
}

void check_color_jitter() {
  const Json document = load("data/colour.json");
  for (const Json& entry : document.at("jitter")) {
    require_known_fields(entry, {"image", "order", "brightness", "contrast", "saturation", "hue", "sha256", "pixels"});
    data::Image image = load_image("colour/" + entry.at("image").get<std::string>() + ".npy");
    data::ColorJitter jitter{.order = entry.at("order"), .uses = {true, true, true, true}};
    jitter.factors = {entry.at("brightness"), entry.at("contrast"), entry.at("saturation"), entry.at("hue")};
    data::apply_jitter(image, jitter);
    expect_digest(image, entry, "pixels");
  }
}

void check_normalize() {
  const Json document = load("data/normalise.json");
  for (const auto& [name, entry] : document.at("sets").items()) {
    require_known_fields(entry, {"mean", "std", "table", "v2_to_dtype_then_normalize"});
    std::string line = "normalize";
    for (const char* field : {"mean", "std"}) {
      line += std::string(",") + field + "=";
      for (const Json& value : entry.at(field)) line += value.dump() + ",";
      line.pop_back();
    }
    const data::Pipeline pipeline({.lines = {line}});
    const StoredNumbers table = numbers(entry.at("table"));
    ASSERT_TRUE(pipeline.byte_table().has_value());
    std::vector<std::uint8_t> pixels;  // [256, 1, 3]: each byte in each channel
    for (int value = 0; value < 256; ++value) pixels.insert(pixels.end(), 3, static_cast<std::uint8_t>(value));
    std::vector<float> out(3 * 256);
    data::Workspace workspace;
    pipeline.run({.pixels = pixels, .shape = {256, 1, 3}}, {}, out, workspace);
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], static_cast<float>(table.data[i])) << name << " " << i;
      ASSERT_EQ((*pipeline.byte_table())[i / 256][i % 256], out[i]);
    }
  }
}

}  // namespace lockstep::testing::reference
