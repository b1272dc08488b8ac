// SPDX-License-Identifier: BSD-3-Clause
// Images: decoding, transforms and the pipeline against Pillow, torchvision and timm; arrays against h5py and NumPy.
#include "reference/data.hpp"

namespace lockstep::testing::reference {
namespace data_test {

TEST(ReferenceData, Files) {
  run_topic("data",
            {
                {.file = "augment_tables.json",
                 .extra_fields = {"torchvision", "torchvision_policies", "timm_levels", "timm_levels_hparams",
                                  "timm_negated", "timm_policies", "timm_configs", "applied", "multi_crop"}},
                {.file = "colour.json", .extra_fields = {"jitter"}, .run = run_color_case},
                {.file = "crops.json", .extra_fields = {"random_resized_crop", "random_erasing", "jitter_range"}},
                {.file = "decoding.json", .extra_fields = {"scaled"}, .run = run_decoding_case},
                {.file = "geometry.json", .run = run_geometry_case},
                {.file = "malformed.json", .extra_fields = {"verdicts"}},
                {.file = "mixing.json",
                 .extra_fields = {"inputs", "labels", "classes", "boxes", "label_smoothing"},
                 .run = run_mixing_case},
                {.file = "normalise.json", .extra_fields = {"sets"}},
                {.file = "pipelines.json", .extra_fields = {"train", "eval", "timm_eval"}},
                // The test of samplers runs its cases.
                {.file = "repeated_augmentation.json", .run = [](const Json&) {}},
                {.file = "resize.json", .extra_fields = {"resized_crop", "rule"}, .run = run_resize_case},
                {.file = "sources.json", .extra_fields = {"cifar", "folder", "arrays"}},
            });
}

/// A check of fields that are not cases; skipped without the reference data.
void check(void (*fields)()) {
  if (!std::filesystem::is_directory(root() / "data")) GTEST_SKIP() << "no reference data for data";
  fields();
}

TEST(ReferenceData, ScaledDecoding) { check(check_scaled_decoding); }
TEST(ReferenceData, ResizedCrops) { check(check_resized_crops); }
TEST(ReferenceData, SizeRule) { check(check_size_rule); }
TEST(ReferenceData, Crops) { check(check_crops); }
TEST(ReferenceData, ColorJitter) { check(check_color_jitter); }
TEST(ReferenceData, MixingBoxes) { check(check_mixing_boxes); }
TEST(ReferenceData, LabelSmoothing) { check(check_label_smoothing); }
TEST(ReferenceData, AugmentTables) { check(check_augment_tables); }
TEST(ReferenceData, Normalize) { check(check_normalize); }
TEST(ReferenceData, Pipelines) { check(check_pipelines); }
TEST(ReferenceData, Malformed) { check(check_malformed); }
TEST(ReferenceData, Sources) { check(check_sources); }
TEST(ReferenceData, Arrays) { check(check_arrays); }
TEST(ReferenceData, MalformedSources) { check(check_malformed_sources); }

}  // namespace data_test
}  // namespace lockstep::testing::reference
