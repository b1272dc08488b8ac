// SPDX-License-Identifier: BSD-3-Clause
// What the tests of topic `data` share.
#pragma once

#include <lockstep/data/transform.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "reference/arrays.hpp"
#include "reference/sha256.hpp"
#include "support/reference.hpp"

namespace lockstep::testing::reference {

/// The file of a path in the topic.
inline std::filesystem::path data_path(const std::string& path) { return golden("data/" + path); }

/// uint8 pixels [height, width, channels] of an .npy file.
inline data::Image load_image(const std::string& path) {
  const std::vector<int> shape = npy_shape(data_path(path));
  const auto bytes = read_npy<std::uint8_t>(data_path(path), "|u1");
  data::Image image;
  image.reshape({shape.at(0), shape.at(1)}, shape.size() > 2 ? shape.at(2) : 1);
  std::copy(bytes.begin(), bytes.end(), image.pixels.begin());
  return image;
}

/// Fails for another shape, or for the first byte that differs by more than `tolerance`.
inline void expect_image(const data::Image& actual, const data::Image& expected, int tolerance,
                         const std::string& what) {
  ASSERT_EQ(actual.height, expected.height) << what;
  ASSERT_EQ(actual.width, expected.width) << what;
  ASSERT_EQ(actual.channels, expected.channels) << what;
  for (std::size_t i = 0; i < expected.pixels.size(); ++i) {
    if (std::abs(actual.pixels[i] - expected.pixels[i]) <= tolerance) continue;
    ADD_FAILURE() << what << ": byte " << i << " is " << int{actual.pixels[i]} << " instead of "
                  << int{expected.pixels[i]};
    return;
  }
}

/// Compares an image with the stored digest, and, where they are stored, with the pixels.
inline void expect_digest(const data::Image& actual, const Json& entry, const std::string& pixels_field) {
  const std::string what = entry.dump().substr(0, 160);
  if (entry.contains(pixels_field) && entry.at(pixels_field).is_string()) {
    expect_image(actual, load_image(entry.at(pixels_field)), 0, what);
  }
  EXPECT_EQ(sha256({actual.pixels.begin(), actual.pixels.size()}), entry.at("sha256").get<std::string>()) << what;
}

// One function for each file of the topic.
void run_decoding_case(const Json& one_case);
void check_scaled_decoding();
void run_resize_case(const Json& one_case);
void check_resized_crops();
void check_size_rule();
void run_geometry_case(const Json& one_case);
void run_color_case(const Json& one_case);
void check_color_jitter();
void check_crops();
void run_mixing_case(const Json& one_case);
void check_mixing_boxes();
void check_label_smoothing();
void check_augment_tables();
void check_normalize();
void check_pipelines();
void check_malformed();
void check_sources();
void check_arrays();
void check_malformed_sources();

}  // namespace lockstep::testing::reference
