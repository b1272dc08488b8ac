// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::checkpoints {

/// How images become inputs of a published model in evaluation: timm's `pretrained_cfg`.
struct PretrainedImages {
  std::int64_t channels = 3;
  std::int64_t height = 224;
  std::int64_t width = 224;
  double crop_pct = 0.875;  ///< side of the crop / side of the resized image
  std::string crop_mode = "center";
  std::string interpolation = "bicubic";
  std::vector<double> mean = {0.485, 0.456, 0.406};
  std::vector<double> std = {0.229, 0.224, 0.225};
};

/// The content of `config.json` of a folder that timm writes and loads (`local-dir:FOLDER`).
struct TimmConfig {
  std::string path;                 ///< path of the file
  std::string architecture;         ///< architecture without the tag: "resnet50", not "resnet50.a1_in1k"
  std::int64_t num_classes = 1000;  ///< 0 = the model has no head
  std::map<std::string, std::string> model_args = {};  ///< arguments of the model with their values as JSON
  std::string global_pool = {};                        ///< "avg" or "token"; empty = not stated
  PretrainedImages images = {};
  std::vector<std::string> label_names = {};  ///< one for each class, or empty
};

inline constexpr std::string_view kConfigFile = "config.json";

/// @param folder  folder with a file config.json
/// @throws CheckpointError  the file is missing, malformed, or describes a model of another library
TimmConfig read_timm_config(const std::string& folder);
/// The same of a text.
/// @param path  for messages
TimmConfig parse_timm_config(const std::string& text, const std::string& path);

/// The file with the weights of a model folder: model.safetensors, its index, or pytorch_model.bin.
/// @return  empty if `folder` is not a folder or has none of them
/// @throws CheckpointError  a folder with config.json has none of them
std::string weights_file_in(const std::string& folder);

/// The lines of data.val_transform that prepare images like timm.
/// @throws CheckpointError  Lockstep has no such preparation; the message begins with `path`
std::vector<std::string> evaluation_lines(const PretrainedImages& images, const std::string& path);
/// "normalize,mean=0.5,0.5,0.5,std=0.5,0.5,0.5".
std::string normalize_line(const PretrainedImages& images);

}  // namespace lockstep::checkpoints
