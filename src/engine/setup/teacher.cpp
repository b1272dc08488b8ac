// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/teacher.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/log/log.hpp>

#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "checkpoints/format/digest.hpp"
#include "core/text/table.hpp"
#include "core/text/text.hpp"
#include "engine/settings/agreed.hpp"
#include "engine/setup/init_from.hpp"
#include "engine/setup/resources.hpp"
#include "engine/state/resume_settings.hpp"
#include "engine/state/stored_model.hpp"
#include "models/layers/taps.hpp"
#include "models/losses/distillation.hpp"
#include "models/losses/task_table.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::engine {

namespace {

/// Section `model` of the teacher: "resnet18,width=32", see distill.model.
Section model_section(const Section& distill, const Registry& registry) {
  const std::string place = distill.cite("model");
  const std::vector<std::string> parts = entry_parts(distill.text("model"));
  if (parts.front().empty()) {
    throw ConfigError(place + " must name the model of the file, such as resnet18 or vit,depth=6, because " +
                      distill.text("from") + " does not contain its configuration");
  }
  Section model = Section::with_defaults("model", models::model_keys(registry.models));
  model.set("name", parts.front(), place);
  for (auto part = parts.begin() + 1; part != parts.end(); ++part) set_option(model, *part, place);
  return model;
}

/// A value of distill.model in today's form; "" if it has that form.
std::string todays_model(const std::string& former, const std::string&) {
  const std::string today = todays_entry(former, {}, models::model_keys());
  return today == former ? "" : today;
}

bool have_same_preprocessing(const Section& one, const Section& other) {
  return std::all_of(one.values().begin(), one.values().end(), [&other](const auto& item) {
    const bool is_of_it = item.first == "preprocess" || item.first.starts_with("image_");
    return !is_of_it || item.second.texts == other.values().at(item.first).texts;
  });
}

/// Computes the scores of the teacher.
class Scores {
 public:
  /// @param preprocesses  the model does not do it
  Scores(std::shared_ptr<models::Model> teacher, bool preprocesses)
      : teacher_(std::move(teacher)),
        preprocesses_(preprocesses),
        dtype_(teacher_->parameters().empty() ? at::kFloat : teacher_->parameters().front().scalar_type()) {}

  at::Tensor operator()(const batch::Batch& prepared) const {
    const torch::NoGradGuard no_grad;
    const models::ScopedTaps none({});  // those of the model would take the blocks for its own
    try {
      batch::Batch own = prepared.share();
      if (preprocesses_) own = teacher_->preprocess(std::move(own), /*is_training=*/false);
      for (const std::string& key : own.roles().inputs) {
        if (!own.has(key)) continue;
        own.change(key, [this](at::Tensor& tensor) {
          if (tensor.is_floating_point()) tensor = tensor.to(dtype_);
        });
      }
      return models::run(*teacher_, own).main();
    } catch (const ConfigError& error) {
      throw ConfigError(std::string("distill.from: the teacher does not accept the samples: ") + error.what());
    }
  }

 private:
  std::shared_ptr<models::Model> teacher_;
  bool preprocesses_;
  at::ScalarType dtype_;
};

/// The names of the classes in the data.
const std::vector<std::string>& ids_of(const Task& task) {
  return task.class_ids.empty() ? task.class_names : task.class_ids;
}

void require_same_task(const Section& distill, const Task& data, const Task& stored) {
  const std::string place = distill.cite("from") + ": the teacher";
  if (stored.kind != data.kind) {
    throw ConfigError(place + " was trained for the task " + models::row_of(stored.kind).name +
                      ", but that of the data is " + models::row_of(data.kind).name);
  }
  if (stored.classes != data.classes) {
    throw ConfigError(place + " has " + std::to_string(stored.classes) + " classes, but the data have " +
                      std::to_string(data.classes));
  }
  const std::vector<std::string>& taught = ids_of(stored);
  const std::vector<std::string>& found = ids_of(data);
  for (std::size_t i = 0; i < std::min(taught.size(), found.size()); ++i) {
    if (taught[i] == found[i]) continue;
    throw ConfigError(place + "'s class " + std::to_string(i) + " is '" + taught[i] + "', but that of the data is '" +
                      found[i] + "'; order the classes alike, see data.classes");
  }
}

InitSettings init_settings(const Section& distill) {
  return {.files = {distill.text("from")},
          .weights = distill.text("weights"),
          .weights_cited_as = distill.cite("weights"),
          .resizes_positions = false,
          .family = distill.text("family"),
          .renames = renames_of(distill),
          .section = "distill"};
}

/// @return  of all values of the model, in the order of their names
std::string give_values_of_root(const models::Model& teacher, const mpi::Communicator& world) {
  std::string digests;
  for (const auto& tensors : {parameters_of(teacher), buffers_of(teacher)}) {
    for (const auto& [name, tensor] : tensors) {
      const at::Tensor flat = tensor.detach().contiguous();
      parallel::broadcast(flat, world);
      if (!flat.is_same(tensor)) tensor.copy_(flat);
      digests += name + " " + checkpoints::hex_of(checkpoints::digest128(parallel::bytes_of(flat))) + "\n";
    }
  }
  return checkpoints::hex_of(checkpoints::digest128(std::as_bytes(std::span(digests))));
}

/// One forward pass for the first sample.
void require_fitting_scores(const Scores& scores, const parallel::DistributedDataParallel& model,
                            const data::Dataset& train, const Section& distill) {
  const std::vector<batch::Draw> draws = batch::draws_in_order(0, 1);
  const at::Tensor found = scores(model.prepare(train.get(draws), /*is_training=*/false));
  const std::int64_t classes = found.dim() == 0 ? 0 : found.size(found.dim() == 4 ? 1 : -1);
  if (classes == train.task().classes) return;
  throw ConfigError(distill.cite("from") + ": the teacher computes " + std::to_string(classes) +
                    " scores, but the data have " + std::to_string(train.task().classes) + " classes");
}

}  // namespace

KeySpecs distill_keys() {
  KeySpecs keys = keys::titled(
      "Teacher of a distillation (loss.name=distill)",
      {keys::text("distill.from", "",
                  "Weights of the teacher (loss.name=distill): folder of a run, checkpoint, .safetensors, .pt, .pth, "
                  ".npz or .h5 file"),
       keys::replacing(keys::text("distill.model", "",
                                  "Model of the teacher with its options, such as resnet18,width=32,stem=small. If "
                                  "empty, that of the run in distill.from"),
                       {.key = "distill.model", .translate = todays_model}),
       keys::real("distill.alpha", "0.5",
                  "Weight of the divergence from the teacher. The cross-entropy with the targets has the weight 1 - "
                  "alpha",
                  0, 1),
       keys::real_above("distill.temperature", 0, keys::kUnlimited, "2",
                        "Divisor of the scores of both models in the divergence, which is multiplied by its square"),
       weights_key("distill.weights", "Weights to read if distill.from contains trained ones and their average"),
       keys::expert(keys::choice("distill.family", "auto",
                                 "Library that defines the parameter names of distill.from. auto = find it by the "
                                 "names",
                                 {"auto", "torchvision", "timm"})),
       keys::expert(keys::texts(
           "distill.rename", "",
           "FROM=TO: replace the prefix FROM by TO in the parameter names of distill.from. re:FROM=TO "
           "replaces every match of a regular expression; $1 in TO is a group. Rules apply one after another"))});
  for (KeySpec& key : keys) {
    if (key.name != "distill.from") key = keys::read_by(key, "loss.name", {"distill"});  // has_teacher refuses it
  }
  return keys;
}

bool has_teacher(const Sections& sections) {
  const Section& distill = sections.at("distill");
  const bool is_wanted = sections.at("loss").text("name") == "distill";
  const bool is_named = !distill.text("from").empty();
  if (is_wanted && !is_named) {
    throw ConfigError(sections.at("loss").cite("name") + ": distill needs a teacher; set distill.from to its weights");
  }
  if (!is_wanted && is_named) {
    throw ConfigError(distill.cite("from") + " names a teacher, but " + sections.at("loss").cite("name") + " is " +
                      sections.at("loss").text("name") + "; set loss.name=distill");
  }
  return is_wanted;
}

std::string attach_teacher(const Resources& resources, parallel::DistributedDataParallel& wrapper,
                           const Sections& sections, const Registry& registry, const data::Dataset& train) {
  const mpi::Communicator& world = resources.world;
  const Section& distill = sections.at("distill");
  const Task task = train.task();
  if (!agreed(world, [&] { return has_teacher(sections); })) return "";
  std::shared_ptr<models::Model> teacher;
  std::string name;
  bool preprocesses = false;
  InitSettings settings;
  world.all_or_throw([&] {
    const Section model = model_section(distill, registry);
    const bool is_double = wrapper.model().parameters().front().scalar_type() == at::kDouble;
    teacher = models::build(model, task, resources.draws.seed, is_double ? at::kDouble : at::kFloat, registry.models);
    preprocesses = !have_same_preprocessing(model, sections.at("model"));
    if (preprocesses && sections.at("model").text("preprocess") != "none") {
      throw ConfigError(sections.at("model").cite("preprocess") +
                        ": the teacher needs other values of model.preprocess and model.image_* than the model; use "
                        "the same for both");
    }
    name = model.text("name");
    settings = init_settings(distill);
  });
  const auto write = [](const std::vector<NamedTensor>& parameters, const auto& take) {
    std::for_each(parameters.begin(), parameters.end(), take);
  };
  init_model(world, *teacher, settings, write, [&](const checkpoints::Archive& archive) {
    if (const std::optional<Task> stored = stored_task(archive)) require_same_task(distill, task, *stored);
  });
  const torch::NoGradGuard no_grad;
  const std::string digest = give_values_of_root(*teacher, world);
  for (at::Tensor& parameter : teacher->parameters()) parameter.set_requires_grad(false);
  teacher->to(resources.device);
  teacher->eval();
  const Scores scores(teacher, preprocesses);
  world.all_or_throw([&] {
    require_fitting_scores(scores, wrapper, train, distill);
    wrapper.model().set_loss(
        models::with_teacher(sections.at("loss"), task,
                             {.alpha = distill.real("alpha"), .temperature = distill.real("temperature")}, scores));
  });
  log::info("distill: the teacher " + name + " has the weights of " + distill.text("from"));
  return digest;
}

}  // namespace lockstep::engine
