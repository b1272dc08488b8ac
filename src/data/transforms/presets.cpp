// SPDX-License-Identifier: BSD-3-Clause
#include "data/transforms/presets.hpp"

#include <cmath>

#include "core/text/table.hpp"

namespace lockstep::data {

namespace {

using Lines = std::vector<std::string>;

std::string with_size(const std::string& name, double size, const std::string& more = "") {
  return name + ",size=" + std::to_string(std::lround(size)) + more;
}

/// @param resized  short side before the crop
Lines evaluation(int size, double resized, const std::string& filter = "") {
  return {with_size("resize", resized, filter), with_size("center_crop", size), "normalize"};
}

constexpr const char* kBicubic = ",filter=bicubic";

ExpandedPreset imagenet(int size) {
  return {.train = {with_size("random_resized_crop", size), "horizontal_flip", "normalize"},
          .val = evaluation(size, size * 256.0 / 224)};
}

ExpandedPreset torchvision2(int size) {
  return {.train = {with_size("random_resized_crop", size * 176.0 / 224), "horizontal_flip",
                    "trivial_augment_wide,filter=bilinear", "normalize", "random_erasing,p=0.1"},
          .val = evaluation(size, size * 232.0 / 224),
          .mix = {"mixup,alpha=0.2", "cutmix,alpha=1"}};
}

/// ResNet strikes back (Wightman, Touvron and Jegou, 2021).
ExpandedPreset strikes_back(int size, double train_size, int magnitude, const char* mixup) {
  return {.train = {with_size("random_resized_crop", train_size, kBicubic), "horizontal_flip",
                    "rand_augment,timm=rand-m" + std::to_string(magnitude) + "-mstd0.5-inc1", "normalize"},
          .val = evaluation(size, size / 0.95, kBicubic),
          .mix = {std::string("mixup,alpha=") + mixup, "cutmix,alpha=1"}};
}

ExpandedPreset timm_a1(int size) { return strikes_back(size, size, 7, "0.2"); }
ExpandedPreset timm_a2(int size) { return strikes_back(size, size, 7, "0.1"); }
ExpandedPreset timm_a3(int size) { return strikes_back(size, size * 160.0 / 224, 6, "0.1"); }

ExpandedPreset deit(int size) {
  return {.train = {with_size("random_resized_crop", size, kBicubic), "horizontal_flip",
                    "rand_augment,timm=rand-m9-mstd0.5-inc1", "normalize",
                    "random_erasing,p=0.25,scale=0.02,0.3333333333333333,ratio=0.3,3.3333333333333335,value=pixel"},
          .val = evaluation(size, std::floor(size / 0.875), kBicubic),
          .mix = {"mixup,alpha=0.8", "cutmix,alpha=1"}};
}

/// Images keep their size of 32 x 32. The statistics are those of CIFAR-10.
ExpandedPreset cifar(int) {
  const std::string normalize = "normalize,mean=0.4914,0.4822,0.4465,std=0.2470,0.2435,0.2616";
  return {.train = {"random_crop,size=32,padding=4", "horizontal_flip", normalize}, .val = {normalize}};
}

/// Views for self-supervised training.
ExpandedPreset views(int size, const std::string& multi_crop) {
  return {
      .train = {multi_crop, "horizontal_flip", "color_jitter,brightness=0.8,contrast=0.8,saturation=0.8,hue=0.2,p=0.8",
                "grayscale,p=0.2", "gaussian_blur,kernel=23,sigma=0.1,2,p=0.5", "normalize"},
      .val = evaluation(size, size * 256.0 / 224)};
}

ExpandedPreset simclr(int size) {
  return views(size, "multi_crop,crops=2,sizes=" + std::to_string(size) + ",scales=0.08,1");
}

std::string two_sizes(int size, const std::string& crops, const std::string& scales) {
  const std::string small = std::to_string(std::lround(size * 96.0 / 224));
  return "multi_crop,crops=" + crops + ",sizes=" + std::to_string(size) + "," + small + ",scales=" + scales;
}

ExpandedPreset dino(int size) { return views(size, two_sizes(size, "2,8", "0.4,1,0.05,0.4")); }
ExpandedPreset swav(int size) { return views(size, two_sizes(size, "2,6", "0.14,1,0.05,0.14")); }

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> rows = {
      {"imagenet", "torchvision's original recipe for ImageNet", imagenet},
      {"torchvision2", "torchvision's new recipe: trivial_augment_wide, random_erasing, mixup and cutmix",
       torchvision2},
      {"timm_a1", "ResNet strikes back, procedure A1", timm_a1},
      {"timm_a2", "ResNet strikes back, procedure A2", timm_a2},
      {"timm_a3", "ResNet strikes back, procedure A3", timm_a3},
      {"deit", "DeiT and vision transformers", deit},
      {"cifar", "CIFAR: padded random crops and flips", cifar},
      {"simclr", "Two views for SimCLR", simclr},
      {"dino", "Ten views for DINO", dino},
      {"swav", "Eight views for SwAV", swav},
  };
  return rows;
}

ExpandedPreset expand_preset(const std::string& name, int image_size) {
  return find_row(presets(), name, "data.augmentation").expand(image_size);
}

}  // namespace lockstep::data
