// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/stateful.hpp>

#include <torch/types.h>

#include "checkpoints/store/store.hpp"
#include "engine/evaluation/evaluation.hpp"
#include "engine/session.hpp"
#include "engine/settings/agreed.hpp"
#include "engine/state/paths.hpp"
#include "engine/state/stored_model.hpp"
#include "models/script/script_archive.hpp"

namespace lockstep::engine {

std::int64_t export_script(const mpi::Communicator& world, const Sections& sections, const std::string& checkpoint,
                           const std::string& target) {
  return std::stoll(text_of_root(world, [&] {
    const Section& model = sections.at("model");
    if (model.text("name") != "torchscript") {
      throw ConfigError(
          "export writes TorchScript archives of runs with model.name=torchscript, but this run trained '" +
          model.text("name") + "': use ckpt convert for its weights");
    }
    const EvalSettings eval = EvalSettings::from(sections.at("eval"));
    checkpoints::Archive archive = checkpoints::read(checkpoint);
    const std::int64_t step = archive.integer("/", "step");
    const bool is_average = takes_average(archive, eval.weights.value, eval.weights.cite);
    archive = with_model(archive, is_average, AverageType::of_trained);
    models::write_script(model.text("file"), target, [&archive, &checkpoint](const std::string& name) {
      for (const std::string& group : {kParameters, kBuffers}) {
        if (archive.has(path(group, name))) return tensor_over(archive.array(path(group, name)));
      }
      throw CheckpointError(checkpoint, "does not contain '" + name + "', which is in the archive of model.file");
    });
    return std::to_string(step);
  }));
}

}  // namespace lockstep::engine
