// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <algorithm>

#include "data/codecs/decode.hpp"
#include "data/image/geometry.hpp"
#include "data/image/resize.hpp"
#include "data/transforms/pipeline.hpp"
#include "data/transforms/policies.hpp"
#include "reference/data.hpp"

namespace lockstep::testing::reference {

namespace {

constexpr const char* kEvaluatedFile = "images/large_420.jpg";  // the only file of this topic's pipelines

/// float32 [channels, height, width] of pixels after `normalize`, with a box of zeros.
std::vector<float> normalized(const data::Image& image, const Json& erased) {
  const data::Pipeline pipeline({.lines = {"normalize"}});
  std::vector<float> out(image.pixels.size());
  data::Workspace workspace;
  pipeline.run({.pixels = {image.pixels.begin(), image.pixels.size()}, .shape = {image.height, image.width, 3}}, {},
               out, workspace);
  if (erased.is_null()) return out;
  const auto width = static_cast<std::size_t>(image.width);
  const std::size_t plane = static_cast<std::size_t>(image.height) * width;
  const std::array<std::size_t, 4> box = erased;
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t y = box[0]; y < box[0] + box[2]; ++y) {
      std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(c * plane + y * width + box[1]), box[3], 0.0F);
    }
  }
  return out;
}

void check_train_case(const Json& entry) {
  require_known_fields(entry, {"file", "crop_top_left_height_width", "size", "flip", "op", "magnitude",
                               "erase_top_left_height_width", "uint8", "float32_chw"});
  const auto bytes = read_bytes(data_path(entry.at("file")));
  const std::array<int, 4> box = entry.at("crop_top_left_height_width");
  data::Workspace workspace;
  data::Image image;
  data::decode_image(bytes, data::read_image_header(bytes), {.part = data::Box{box[0], box[1], box[2], box[3]}}, image,
                     workspace);
  const int size = entry.at("size");
  data::resize(image, {size, size}, data::ResizeFilter::bilinear, workspace);
  if (entry.at("flip").get<bool>()) data::flip_horizontally(image);
  data::apply_op(
      image, {data::op_named(entry.at("op").get<std::string>()), data::ResizeFilter::bilinear, entry.at("magnitude")},
      {}, workspace);
  expect_image(image, load_image(entry.at("uint8")), 0, entry.dump());
  EXPECT_EQ(normalized(image, entry.at("erase_top_left_height_width")),
            read_npy<float>(data_path(entry.at("float32_chw")), "<f4"));
}

void check_evaluation(const std::vector<std::string>& lines, const Json& entry) {
  const auto bytes = read_bytes(data_path(kEvaluatedFile));
  const data::Pipeline pipeline({.lines = lines, .is_training = false});
  const auto size = pipeline.size();
  ASSERT_TRUE(size.has_value());
  data::Workspace workspace;
  std::vector<float> out(3 * static_cast<std::size_t>(size->height) * static_cast<std::size_t>(size->width));
  pipeline.run({.file = bytes}, {}, out, workspace);
  expect_image(workspace.patch.image, load_image(entry.at("uint8")), 0, entry.dump());
  if (!entry.contains("float32_chw")) return;
  EXPECT_EQ(out, read_npy<float>(data_path(entry.at("float32_chw")), "<f4"));
}

}  // namespace

void check_pipelines() {
  const Json document = load("data/pipelines.json");
  for (const Json& entry : document.at("train")) check_train_case(entry);
  check_evaluation({"resize,size=40", "center_crop,size=32", "normalize"}, document.at("eval"));
  const std::string timm_size = document.at("timm_eval").at("resized_to").dump();
  check_evaluation({"resize,filter=bicubic,size=" + timm_size, "center_crop,size=32", "normalize"},
                   document.at("timm_eval"));
}

void check_malformed() {
  int images = 0;
  const Json document = load("data/malformed.json");
  for (const Json& entry : document.at("verdicts")) {
    if (entry.at("source") != "image") continue;
    ++images;
    const std::string file = entry.at("file");
    const auto bytes = read_bytes(data_path(file));
    for (const bool decodes_part : {false, true}) {  // the whole image, and a part that begins after the first row
      std::string message;
      try {
        const data::ImageHeader header = data::read_image_header(bytes);
        data::DecodeOptions options;
        if (decodes_part) options.part = data::Box{1, 1, std::min(4, header.height - 1), std::min(4, header.width - 1)};
        data::Image image;
        data::Workspace workspace;
        data::decode_image(bytes, header, options, image, workspace);
      } catch (const DataError& error) {
        message = error.what();
        EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      }
      if (entry.at("verdict") != "either") {
        EXPECT_EQ(message.empty(), entry.at("verdict") == "accept") << file << ": " << message;
      }
      for (const Json& word : entry.at("message_names")) {
        EXPECT_NE(message.find(word.get<std::string>()), std::string::npos) << message;
      }
    }
  }
  EXPECT_GT(images, 0);
}

}  // namespace lockstep::testing::reference
