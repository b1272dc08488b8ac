// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// Families of models as data: their models, keys and sizes, the names of their parameters, and their counterparts in
/// other libraries. Nothing here needs LibTorch, so that `ckpt` reads it, too.
namespace lockstep::families {

/// Keys of section `model` without the section, with their values: {"depth", "6"}.
using ModelKeys = std::vector<std::pair<std::string, std::string>>;

/// The shapes of parameters and buffers by their names.
using TensorShapes = std::map<std::string, std::vector<std::int64_t>>;

/// A model of a family with sizes of its own.
struct ModelPreset {
  std::string name;       ///< value of model.name
  std::string help = {};  ///< empty = that of the family
  ModelKeys sizes = {};   ///< they precede FamilyRow::sizes
};

/// The change of a tensor between two forms. The bytes are always the same.
enum class NameOperation : std::uint8_t {
  same,
  channel_scale,  ///< ours [C], theirs [C, 1, 1]
};

/// A pattern of our names and one of theirs. `{i}` stands for a number, which has the same value on both sides;
/// `{2i+1}` stands for a number that is computed from it. `*` at the end stands for the last part of a name, such as
/// "weight". The first row that matches is used.
struct NameRow {
  std::string ours;
  std::string theirs;
  NameOperation operation = NameOperation::same;
};

/// An argument of the functions that create the models of a family in another library.
struct PublicArgument {
  std::string name;
  std::string key = {};        ///< key of section `model` with the same value; empty = there is none
  std::string unwritten = {};  ///< values, separated by blanks, that change nothing and are not written; empty, without
                               ///< a key = every value changes nothing
  std::string otherwise = {};  ///< value to write if the sizes do not contain the key; empty = none
};

/// A trained model, as a checkpoint describes it.
struct TrainedModel {
  std::string name;                              ///< value of model.name
  std::map<std::string, std::string> keys = {};  ///< values of section `model` by key: {"num_heads", "3"}
  TensorShapes shapes = {};                      ///< shapes of the parameters and buffers, by our names
  std::int64_t channels = 0;                     ///< channels of the images; 0 = unknown
  std::int64_t height = 0;                       ///< height of the images in pixels; 0 = unknown
  std::int64_t width = 0;
};

/// A model that a function of another library creates.
struct PublicModel {
  std::string library;   ///< "timm"
  std::string function;  ///< "resnet50"; for torchvision relative to torchvision.models
  /// Arguments of the function by name, in the syntax of Python, which for timm is that of JSON, too. Without the
  /// number of classes.
  ModelKeys arguments = {};
  std::vector<NameRow> names = {};  ///< empty = the same names
  std::string late = {};            ///< see LibraryRow
  std::string before_late = {};
  std::string head = {};      ///< module that computes the outputs, by its name in the library; empty = none
  std::string stem = {};      ///< convolution that reads the images, likewise
  std::int64_t channels = 0;  ///< channels of the images
  std::int64_t height = 0;    ///< height of the images; 0 = unknown
  std::int64_t width = 0;
  std::int64_t classes = 0;     ///< outputs of the head; 0 = it has none
  bool has_fixed_size = false;  ///< reads images of this height and width only
};

struct FamilyRow;

/// The counterpart of a family in another library.
struct LibraryRow {
  std::string name;                 ///< "torchvision", "timm" or another one
  std::vector<NameRow> names = {};  ///< empty = the same names
  std::string late = {};            ///< our parameter that comes later in the order of the library: behind those
  std::string before_late = {};     ///< `before_late`: the beginning of their names
  std::vector<PublicArgument> arguments = {};  ///< timm: empty = its folders do not describe them
  ModelKeys settings = {};      ///< keys that all models of the library need here, such as {"stem", "imagenet"}
  bool is_import_only = false;  ///< weights can be read, but the library lacks these models
  /// Completes the counterpart of a trained model, in which function, arguments, head, stem and sizes of the images are
  /// set; empty = it is complete.
  /// @throws CheckpointError  the library lacks this model, see `refuse`
  std::function<void(const FamilyRow& family, const TrainedModel& model, PublicModel& result)> complete = {};
};

/// All that is known about a family without creating a model. Every part is optional.
struct FamilyRow {
  std::string name = {};  ///< "resnet"; if there are no presets, the value of model.name
  std::string help = {};  ///< one sentence
  KeySpecs keys = {};     ///< keys of section `model`
  /// Values of keys that are left to the model: 0, "auto", an empty list or a real number below 0. Values without a key
  /// are read by the function that creates the model, as texts of section `model`.
  ModelKeys sizes = {};
  std::vector<ModelPreset> presets = {};  ///< the models by name; empty = one with the name of the family

  std::vector<std::string> head = {};  ///< modules that compute the outputs, such as "fc"; a model has one of them
  std::string stem = {};               ///< convolution that reads the images, such as "conv1"
  /// Parameter [1, prefix tokens + height * width, E]: learned positions of a grid of patches that `stem` reads.
  std::string positions = {};
  /// The layers from input to output for layer-wise learning rates, each as beginnings of parameter names, in which
  /// `{a}` and `{b}` stand for numbers; such a row stands for one layer for each number. Empty = each `block3` or
  /// `blocks.3` is a layer, in the order of registration; other parameters belong to the first layer if they precede
  /// them, otherwise to the last one.
  std::vector<std::vector<std::string>> layers = {};
  /// Parameters without weight decay under optim.no_decay=norms_biases, in addition to those with fewer than two
  /// dimensions.
  std::vector<std::string> undecayed = {};
  /// Whether models are faster if the channels of each pixel of an input [N, C, H, W] are adjacent in memory
  /// (torch.channels_last). Then the loader writes images in this order where it can. Values do not depend on it.
  bool prefers_channels_last = false;

  /// The sizes of the model with these tensors, by our names; nothing = they are not of this family. Values without a
  /// key select the preset. Empty = models of this family are not recognized.
  std::function<std::optional<ModelKeys>(const TensorShapes& shapes)> sizes_of = {};
  std::vector<LibraryRow> libraries = {};  ///< the libraries that have these models
};

/// The families of Lockstep's own models.
const std::vector<FamilyRow>& builtin_families();

/// Throws because a library lacks a model.
/// @param reason  completes "LIBRARY lacks a model with ..."
/// @throws CheckpointError  incompatible
[[noreturn]] void refuse(const TrainedModel& model, const std::string& library, const std::string& reason);

/// The shape of a tensor of a trained model.
/// @throws CheckpointError  incompatible: there is no tensor of this name with so many dimensions
const std::vector<std::int64_t>& shape_of(const TrainedModel& model, const std::string& library,
                                          const std::string& name, std::size_t dims);

/// The arguments that one of the family's libraries needs for these sizes, in the order of its row.
ModelKeys arguments_of(const FamilyRow& family, const std::string& library, const ModelKeys& sizes);

/// The value of a key, or nothing.
std::optional<std::string> value_of(const ModelKeys& settings, const std::string& key);

}  // namespace lockstep::families
