// SPDX-License-Identifier: BSD-3-Clause
// The policies of AutoAugment. Source: Cubuk et al., "AutoAugment: learning augmentation policies from data", CVPR
// 2019, with the levels of torchvision and timm.
#include <stdexcept>

#include "data/transforms/policies.hpp"

namespace lockstep::data {

namespace {

using Policy = std::vector<PolicyPair>;

const Policy& cifar10_policy() {
  static const Policy policy = {
      {{"Invert", 0.1, -1}, {"Contrast", 0.2, 6}},         {{"Rotate", 0.7, 2}, {"TranslateX", 0.3, 9}},
      {{"Sharpness", 0.8, 1}, {"Sharpness", 0.9, 3}},      {{"ShearY", 0.5, 8}, {"TranslateY", 0.7, 9}},
      {{"AutoContrast", 0.5, -1}, {"Equalize", 0.9, -1}},  {{"ShearY", 0.2, 7}, {"Posterize", 0.3, 7}},
      {{"Color", 0.4, 3}, {"Brightness", 0.6, 7}},         {{"Sharpness", 0.3, 9}, {"Brightness", 0.7, 9}},
      {{"Equalize", 0.6, -1}, {"Equalize", 0.5, -1}},      {{"Contrast", 0.6, 7}, {"Sharpness", 0.6, 5}},
      {{"Color", 0.7, 7}, {"TranslateX", 0.5, 8}},         {{"Equalize", 0.3, -1}, {"AutoContrast", 0.4, -1}},
      {{"TranslateY", 0.4, 3}, {"Sharpness", 0.2, 6}},     {{"Brightness", 0.9, 6}, {"Color", 0.2, 8}},
      {{"Solarize", 0.5, 2}, {"Invert", 0, -1}},           {{"Equalize", 0.2, -1}, {"AutoContrast", 0.6, -1}},
      {{"Equalize", 0.2, -1}, {"Equalize", 0.6, -1}},      {{"Color", 0.9, 9}, {"Equalize", 0.6, -1}},
      {{"AutoContrast", 0.8, -1}, {"Solarize", 0.2, 8}},   {{"Brightness", 0.1, 3}, {"Color", 0.7, 0}},
      {{"Solarize", 0.4, 5}, {"AutoContrast", 0.9, -1}},   {{"TranslateY", 0.9, 9}, {"TranslateY", 0.7, 9}},
      {{"AutoContrast", 0.9, -1}, {"Solarize", 0.8, 3}},   {{"Equalize", 0.8, -1}, {"Invert", 0.1, -1}},
      {{"TranslateY", 0.7, 9}, {"AutoContrast", 0.9, -1}},
  };
  return policy;
}

const Policy& svhn_policy() {
  static const Policy policy = {
      {{"ShearX", 0.9, 4}, {"Invert", 0.2, -1}},        {{"ShearY", 0.9, 8}, {"Invert", 0.7, -1}},
      {{"Equalize", 0.6, -1}, {"Solarize", 0.6, 6}},    {{"Invert", 0.9, -1}, {"Equalize", 0.6, -1}},
      {{"Equalize", 0.6, -1}, {"Rotate", 0.9, 3}},      {{"ShearX", 0.9, 4}, {"AutoContrast", 0.8, -1}},
      {{"ShearY", 0.9, 8}, {"Invert", 0.4, -1}},        {{"ShearY", 0.9, 5}, {"Solarize", 0.2, 6}},
      {{"Invert", 0.9, -1}, {"AutoContrast", 0.8, -1}}, {{"Equalize", 0.6, -1}, {"Rotate", 0.9, 3}},
      {{"ShearX", 0.9, 4}, {"Solarize", 0.3, 3}},       {{"ShearY", 0.8, 8}, {"Invert", 0.7, -1}},
      {{"Equalize", 0.9, -1}, {"TranslateY", 0.6, 6}},  {{"Invert", 0.9, -1}, {"Equalize", 0.6, -1}},
      {{"Contrast", 0.3, 3}, {"Rotate", 0.8, 4}},       {{"Invert", 0.8, -1}, {"TranslateY", 0, 2}},
      {{"ShearY", 0.7, 6}, {"Solarize", 0.4, 8}},       {{"Invert", 0.6, -1}, {"Rotate", 0.8, 4}},
      {{"ShearY", 0.3, 7}, {"TranslateX", 0.9, 3}},     {{"ShearX", 0.1, 6}, {"Invert", 0.6, -1}},
      {{"Solarize", 0.7, 2}, {"TranslateY", 0.6, 7}},   {{"ShearY", 0.8, 4}, {"Invert", 0.8, -1}},
      {{"ShearX", 0.7, 9}, {"TranslateY", 0.8, 3}},     {{"ShearY", 0.8, 5}, {"AutoContrast", 0.7, -1}},
      {{"ShearX", 0.7, 2}, {"Invert", 0.1, -1}},
  };
  return policy;
}

const Policy& timm_v0_policy() {
  static const Policy policy = {
      {{"Equalize", 0.8, 1}, {"ShearY", 0.8, 4}},
      {{"Color", 0.4, 9}, {"Equalize", 0.6, 3}},
      {{"Color", 0.4, 1}, {"Rotate", 0.6, 8}},
      {{"Solarize", 0.8, 3}, {"Equalize", 0.4, 7}},
      {{"Solarize", 0.4, 2}, {"Solarize", 0.6, 2}},
      {{"Color", 0.2, 0}, {"Equalize", 0.8, 8}},
      {{"Equalize", 0.4, 8}, {"SolarizeAdd", 0.8, 3}},
      {{"ShearX", 0.2, 9}, {"Rotate", 0.6, 8}},
      {{"Color", 0.6, 1}, {"Equalize", 1, 2}},
      {{"Invert", 0.4, 9}, {"Rotate", 0.6, 0}},
      {{"Equalize", 1, 9}, {"ShearY", 0.6, 3}},
      {{"Color", 0.4, 7}, {"Equalize", 0.6, 0}},
      {{"Posterize", 0.4, 6}, {"AutoContrast", 0.4, 7}},
      {{"Solarize", 0.6, 8}, {"Color", 0.6, 9}},
      {{"Solarize", 0.2, 4}, {"Rotate", 0.8, 9}},
      {{"Rotate", 1, 7}, {"TranslateYRel", 0.8, 9}},
      {{"ShearX", 0, 0}, {"Solarize", 0.8, 4}},
      {{"ShearY", 0.8, 0}, {"Color", 0.6, 4}},
      {{"Color", 1, 0}, {"Rotate", 0.6, 2}},
      {{"Equalize", 0.8, 4}, {"Equalize", 0, 8}},
      {{"Equalize", 1, 4}, {"AutoContrast", 0.6, 2}},
      {{"ShearY", 0.4, 7}, {"SolarizeAdd", 0.6, 7}},
      {{"Posterize", 0.8, 2}, {"Solarize", 0.6, 10}},
      {{"Solarize", 0.6, 8}, {"Equalize", 0.6, 1}},
      {{"Color", 0.8, 6}, {"Rotate", 0.4, 5}},
  };
  return policy;
}

const Policy& timm_original_policy() {
  static const Policy policy = {
      {{"PosterizeOriginal", 0.4, 8}, {"Rotate", 0.6, 9}},
      {{"Solarize", 0.6, 5}, {"AutoContrast", 0.6, 5}},
      {{"Equalize", 0.8, 8}, {"Equalize", 0.6, 3}},
      {{"PosterizeOriginal", 0.6, 7}, {"PosterizeOriginal", 0.6, 6}},
      {{"Equalize", 0.4, 7}, {"Solarize", 0.2, 4}},
      {{"Equalize", 0.4, 4}, {"Rotate", 0.8, 8}},
      {{"Solarize", 0.6, 3}, {"Equalize", 0.6, 7}},
      {{"PosterizeOriginal", 0.8, 5}, {"Equalize", 1, 2}},
      {{"Rotate", 0.2, 3}, {"Solarize", 0.6, 8}},
      {{"Equalize", 0.6, 8}, {"PosterizeOriginal", 0.4, 6}},
      {{"Rotate", 0.8, 8}, {"Color", 0.4, 0}},
      {{"Rotate", 0.4, 9}, {"Equalize", 0.6, 2}},
      {{"Equalize", 0, 7}, {"Equalize", 0.8, 8}},
      {{"Invert", 0.6, 4}, {"Equalize", 1, 8}},
      {{"Color", 0.6, 4}, {"Contrast", 1, 8}},
      {{"Rotate", 0.8, 8}, {"Color", 1, 2}},
      {{"Color", 0.8, 8}, {"Solarize", 0.8, 7}},
      {{"Sharpness", 0.4, 7}, {"Invert", 0.6, 8}},
      {{"ShearX", 0.6, 5}, {"Equalize", 1, 9}},
      {{"Color", 0.4, 0}, {"Equalize", 0.6, 3}},
      {{"Equalize", 0.4, 7}, {"Solarize", 0.2, 4}},
      {{"Solarize", 0.6, 5}, {"AutoContrast", 0.6, 5}},
      {{"Invert", 0.6, 4}, {"Equalize", 1, 8}},
      {{"Color", 0.6, 4}, {"Contrast", 1, 8}},
      {{"Equalize", 0.8, 8}, {"Equalize", 0.6, 3}},
  };
  return policy;
}

const Policy& timm_3a_policy() {
  static const Policy policy = {
      {{"Solarize", 1, 5}},
      {{"Desaturate", 1, 10}},
      {{"GaussianBlurRand", 1, 10}},
  };
  return policy;
}

/// The same policy with another operation.
Policy with_op(Policy policy, std::string_view from, const char* target) {
  for (PolicyPair& pair : policy) {
    for (PolicyStep& step : pair) {
      if (step.op == from) step.op = target;
    }
  }
  return policy;
}

/// torchvision has no levels for operations without a magnitude.
Policy without_unused_levels(Policy policy) {
  for (PolicyPair& pair : policy) {
    for (PolicyStep& step : pair) {
      const std::string_view op = step.op;
      if (op == "AutoContrast" || op == "Equalize" || op == "Invert") step.level = -1;
    }
  }
  return policy;
}

}  // namespace

const std::vector<PolicyPair>& torchvision_policy(const std::string& name) {
  static const Policy imagenet =
      without_unused_levels(with_op(timm_original_policy(), "PosterizeOriginal", "Posterize"));
  if (name == "imagenet") return imagenet;
  if (name == "cifar10") return cifar10_policy();
  if (name == "svhn") return svhn_policy();
  throw std::out_of_range("no policy " + name);
}

const std::vector<PolicyPair>& timm_policy(const std::string& name) {
  static const Policy v0r = with_op(timm_v0_policy(), "Posterize", "PosterizeIncreasing");
  static const Policy original_r = with_op(timm_original_policy(), "PosterizeOriginal", "PosterizeIncreasing");
  if (name == "v0") return timm_v0_policy();
  if (name == "v0r") return v0r;
  if (name == "original") return timm_original_policy();
  if (name == "originalr") return original_r;
  if (name == "3a") return timm_3a_policy();
  throw std::out_of_range("no policy " + name);
}

}  // namespace lockstep::data
