// SPDX-License-Identifier: BSD-3-Clause
#include "families/rows/rows.hpp"

namespace lockstep::families {

const std::vector<FamilyRow>& builtin_families() {
  static const std::vector<FamilyRow> families = {
      mlp_family(),         cnn_family(),          gpt_family(),         convnext_family(),  unet_family(),
      torchscript_family(), resnet_family(),       unet_resnet_family(), mobilenet_family(), efficientnet_family(),
      vit_family(),         unet_classic_family(), fno_family()};
  return families;
}

}  // namespace lockstep::families
