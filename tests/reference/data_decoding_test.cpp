// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include "data/codecs/decode.hpp"
#include "reference/data.hpp"

namespace lockstep::testing::reference {

namespace {

data::Image decoded(const std::string& file, const data::DecodeOptions& options, data::ImageHeader* header = nullptr) {
  const auto bytes = read_bytes(data_path(file));
  const data::ImageHeader own = data::read_image_header(bytes);
  if (header != nullptr) *header = own;
  data::Image image;
  data::Workspace workspace;
  data::decode_image(bytes, own, options, image, workspace);
  return image;
}

bool can_read_webp() {
  try {
    data::read_image_header(read_bytes(data_path("images/lossless.webp")));
    return true;
  } catch (const DataError&) {
    return false;
  }
}

}  // namespace

void run_decoding_case(const Json& one_case) {
  require_known_fields(
      one_case, {"file", "note", "bytes", "mode", "size_wh", "rgb", "sha256", "exif_orientation", "oriented_shape",
                 "oriented_sha256", "torchvision_decode_image", "pillow_mode_note", "high_bytes"});
  const std::string file = one_case.at("file");
  if (file.ends_with(".webp") && !can_read_webp()) return;  // this build refuses WebP files by name
  data::ImageHeader header;
  const data::Image image = decoded(file, {}, &header);
  EXPECT_EQ(header.width, one_case.at("size_wh").at(0)) << file;
  EXPECT_EQ(header.height, one_case.at("size_wh").at(1)) << file;
  EXPECT_EQ(header.orientation, one_case.value("exif_orientation", 1)) << file;
  if (one_case.contains("high_bytes")) {  // 16-bit gray: the upper bytes, other than Pillow
    EXPECT_EQ(header.bits, 16) << file;
    expect_image(decoded(file, {.channels = 1}), load_image(one_case.at("high_bytes")), 0, file);
  } else if (file.ends_with("lossy.webp")) {  // depends on the version of libwebp
    expect_image(image, load_image(one_case.at("rgb")), 3, file);
  } else {
    expect_digest(image, one_case, "rgb");
  }
  if (!one_case.contains("oriented_sha256")) return;
  const data::Image upright = decoded(file, {.applies_orientation = true});
  EXPECT_EQ(one_case.at("oriented_shape"), Json({upright.height, upright.width, upright.channels})) << file;
  EXPECT_EQ(sha256({upright.pixels.begin(), upright.pixels.size()}), one_case.at("oriented_sha256")) << file;
}

void check_scaled_decoding() {
  const Json document = load("data/decoding.json");
  for (const Json& entry : document.at("scaled")) {
    require_known_fields(entry, {"file", "scale", "full_wh", "scaled_wh", "sha256", "mean", "pixels"});
    const int reduction = std::stoi(entry.at("scale").get<std::string>().substr(2));
    const data::Image image = decoded(entry.at("file"), {.reduction = reduction});
    EXPECT_EQ(Json({image.width, image.height}), entry.at("scaled_wh"));
    expect_digest(image, entry, "pixels");
    double sum = 0;
    for (const std::uint8_t byte : image.pixels) sum += byte;
    EXPECT_DOUBLE_EQ(sum / static_cast<double>(image.pixels.size()), number(entry.at("mean")));
  }
}

}  // namespace lockstep::testing::reference
